package hostnode

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// rayCommand is the name under which this program is a fake of the ray command, with the features
// that a RayCluster uses.
const rayCommand = "ray"

// rayMain runs the fake `ray` with these arguments. It returns the exit status.
func rayMain(args []string) int {
	if len(args) > 0 {
		flags := rayFlags(args[1:])
		switch args[0] {
		case "health-check":
			return exitStatus(checkGCS(args[len(args)-1]))
		case "start":
			return exitStatus(rayStart(flags))
		}
	}
	return exitStatus(fmt.Errorf("the fake ray does not support %q", args))
}

func exitStatus(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// rayFlags parses flags with or without a value.
func rayFlags(args []string) map[string]string {
	flags := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		flags[name] = value
	}
	return flags
}

// rayStart runs a fake Ray node until it is asked to stop. All Pods share one network, so it
// listens on its own address.
func rayStart(flags map[string]string) error {
	_, head := flags["head"]
	if _, block := flags["block"]; !block {
		return fmt.Errorf("--block is missing: the container would exit at once")
	}
	if !head { // a worker that starts too early exits
		if err := checkGCS(flags["address"]); err != nil {
			return err
		}
	}
	address, err := ownAddress()
	if err != nil {
		return err
	}
	failed := make(chan error, 3)
	serve := func(port, path, answer string) {
		mux := http.NewServeMux()
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
		go func() { failed <- http.ListenAndServe(net.JoinHostPort(address, port), mux) }()
	}
	serve(flags["dashboard-agent-listen-port"], "/api/healthz", "success")
	if head {
		serve("6379", "/", "gcs")
		serve("8265", "/api/gcs_healthz", "success")
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case <-asked:
		return nil
	case err := <-failed:
		return err
	}
}

// checkGCS checks the health of the head of a cluster.
func checkGCS(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("check the health of the GCS: %w", err)
	}
	return answer.Body.Close()
}

// ownAddress returns the address of the Pod.
func ownAddress() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	all, err := net.DefaultResolver.LookupHost(context.Background(), host)
	if err != nil {
		return "", err
	}
	return all[0], nil
}
