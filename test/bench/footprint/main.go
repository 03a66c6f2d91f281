// The program bench/footprint measures the cost of an idle robot: the size of the agent's binary, its
// memory, and the bytes that it sends and receives per day over TLS.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var window = flag.Duration("window", 3*time.Minute, "how long to count bytes; use a multiple of the heartbeat interval of 30s for an exact result")

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	BinaryMB float64 `json:"binary_mb"`
	RSSMB    float64 `json:"rss_mb_idle"`
	MBPerDay float64 `json:"mqtt_mb_per_day"`
}

func runBenchmark(t testing.TB) {
	up := testkit.StartUp(t, "--robots", "0")
	wire := countingProxy(t, strings.TrimPrefix(up.MQTTSURL, "mqtts://"))
	binary := testkit.BinaryPath(t, "k8s4r-agent")
	join := testkit.JoinFlags(t, testkit.NewClient(t, up.RESTConfig()), "default", "idle")
	agent := exec.Command(binary, append(join, "--robot-id", "idle", "--mqtt-url", "mqtts://"+wire.address, "--state-dir", filepath.Join(up.DataDir, "idle"))...)
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { agent.Process.Kill(); agent.Wait() })
	testkit.Eventually(t, time.Minute, "the robot is online", func() bool {
		out, _ := up.RunProgram("k8s4r", "kubectl", "get", "robot", "idle", "-o", "jsonpath={.status.phase}")
		return out == "Online"
	})

	// The first heartbeats are part of joining; idle begins after them.
	joined := time.Now()
	testkit.Eventually(t, 2*time.Minute, "the robot has settled", func() bool { return time.Since(joined) > 45*time.Second })
	from, begin := wire.bytes.Load(), time.Now()
	testkit.Eventually(t, *window+time.Minute, "the window is over", func() bool { return time.Since(begin) > *window })
	perDay := float64(wire.bytes.Load()-from) / time.Since(begin).Seconds() * 86400

	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	r := result{BinaryMB: mb(float64(info.Size())), RSSMB: mb(residentMB(t, agent.Process.Pid)), MBPerDay: mb(perDay)}
	fmt.Printf("agent binary    %6.1f MB\nidle RSS        %6.1f MB\nMQTT, both ways %6.2f MB a day\n\n", r.BinaryMB, r.RSSMB, r.MBPerDay)
	json.NewEncoder(os.Stdout).Encode(r)
}

func mb(bytes float64) float64 { return bytes / 1e6 }

var rssLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

func residentMB(t testing.TB, pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := rssLine.FindSubmatch(status)
	if m == nil {
		t.Fatal("no VmRSS in /proc")
	}
	kb, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb * 1024
}

// proxy counts the forwarded bytes, without TCP headers.
type proxy struct {
	address string
	bytes   atomic.Int64
}

func countingProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{address: l.Addr().String()}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			go p.copy(in, out)
			go p.copy(out, in)
		}
	}()
	return p
}

func (p *proxy) copy(from, to net.Conn) {
	io.Copy(io.MultiWriter(to, counter{&p.bytes}), from)
	from.Close()
	to.Close()
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }
