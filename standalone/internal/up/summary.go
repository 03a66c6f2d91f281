package up

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printSummary prints the addresses in s, and whether its data is removed at the end. link signs one
// browser in at the console; if empty, it is left out.
func printSummary(w io.Writer, s State, ephemeral bool, link string) {
	kept, end := "kept when this process ends", `Ctrl-C stops everything; the next "k8s4r up" continues with the same data.`
	if ephemeral {
		kept, end = "removed when this process ends", "Ctrl-C stops everything and removes all data."
	}
	fmt.Fprintln(w, "\nK8s4r is up.")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range []struct{ name, value string }{
		{"data", s.DataDir + " (" + kept + ")"},
		{"API server", s.Server},
		{"kubeconfig", s.Kubeconfig},
		{"MQTT", s.MQTTURL},
		{"MQTT with TLS", s.MQTTSURL},
		{"join API", s.JoinURL},
		{"metrics", s.MetricsURL},
		{"profile", s.ProfileURL},
		{"console", s.ConsoleURL},
		{"robots", strings.Join(s.Robots, " ")},
		{"node", s.Node},
	} {
		if row.value != "" {
			fmt.Fprintf(t, "  %s\t%s\n", row.name, row.value)
		}
	}
	t.Flush()
	if link != "" {
		fmt.Fprintf(w, "\nOpen the console in a browser; this link signs in one browser and is valid for an hour:\n  %s\n", link)
	}
	fmt.Fprintf(w, `
Try, in another terminal:
  export KUBECONFIG=%s
  k8s4r kubectl get robots
  k8s4r run -- echo hello

To let another robot join, run there the command that this prints:
  k8s4r token create

%s
`, s.Kubeconfig, end)
}
