// The program bench/broker measures the cost of certificates and permissions: messages per second,
// their latency and the memory of a connection, of the embedded broker and of Mosquitto, with and
// without them. It also measures how fast a thousand robots reconnect, compared with as many bare TLS
// handshakes.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	robots = flag.Int("robots", 50, "robots that send messages")
	idle   = flag.Int("idle", 1000, "idle robots that are connected while memory is measured, and that reconnect at once")
	lasts  = flag.Duration("for", 3*time.Second, "how long each round sends messages")
	rounds = flag.Int("rounds", 3, "rounds of each broker, in turn; the result has the medians")
	serve  = flag.String("serve", "", "internal: run the embedded broker with the files in this directory")
)

func main() {
	flag.Parse()
	if *serve != "" {
		os.Exit(testkit.RunProgram(func(t testing.TB) { serveEmbedded(t, *serve) }))
	}
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output. Fields without the name of a broker are of the embedded one.
type result struct {
	MsgsPlain     float64 `json:"msgs_per_s_plain"`
	MsgsMTLS      float64 `json:"msgs_per_s_mtls_acl"`
	Ratio         float64 `json:"ratio"`
	P99Ms         float64 `json:"p99_ms"` // with certificates and permissions, under a steady load
	P99PlainMs    float64 `json:"p99_plain_ms"`
	KBConn        float64 `json:"kb_per_conn"`          // with certificates and permissions
	KBConnFirst   float64 `json:"kb_per_conn_at_first"` // including the garbage of 1000 concurrent connects
	KBConnPlain   float64 `json:"kb_per_conn_plain"`
	Storm         float64 `json:"storm_1000_s"` // for a thousand, whatever -idle is
	Handshakes    float64 `json:"handshakes_per_s"`
	StormFloor    float64 `json:"storm_floor_s"` // of a thousand bare handshakes
	MosquittoMsgs float64 `json:"mosquitto_msgs_per_s_plain"`
	MosquittoMTLS float64 `json:"mosquitto_msgs_per_s_mtls_acl"`
	MosquittoP99  float64 `json:"mosquitto_p99_ms"`
	MosquittoKB   float64 `json:"mosquitto_kb_per_conn"`
	MosquittoS    float64 `json:"mosquitto_storm_1000_s"`
	Load          string  `json:"load"`
}

// figures of one broker in one mode.
type figures struct {
	rates, p99s, storms []float64
	kb, kbAtFirst       float64
}

func runBenchmark(t testing.TB) {
	load, _ := os.ReadFile("/proc/loadavg")
	w := newSetup(t)
	brokers := []*target{embeddedTarget(w, false), embeddedTarget(w, true), mosquittoTarget(w, false), mosquittoTarget(w, true)}
	all := make([]figures, len(brokers))
	for i, b := range brokers {
		all[i].kbAtFirst, all[i].kb = b.measureMemory(*idle)
	}
	var handshakes []float64
	for range *rounds {
		for i, b := range brokers {
			all[i].rates = append(all[i].rates, b.measureThroughput(*lasts))
			all[i].p99s = append(all[i].p99s, b.measureLatency(*lasts))
			if b.secure {
				all[i].storms = append(all[i].storms, b.measureReconnect(*idle).Seconds()*1000/float64(*idle))
			}
		}
		handshakes = append(handshakes, float64(*idle)/w.measureHandshakes(*idle).Seconds())
	}
	printResult(t, brokers, all, median(handshakes), strings.TrimSpace(string(load)))
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func printResult(t testing.TB, brokers []*target, all []figures, handshakes float64, load string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmessages/s\tp99 ms\tkB per connection\tat first\ts for 1000 to reconnect\t")
	for i, b := range brokers {
		fmt.Fprintf(w, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t%.2f\t\n", b.name, median(all[i].rates), median(all[i].p99s), all[i].kb, all[i].kbAtFirst, median(all[i].storms))
	}
	w.Flush()
	fmt.Printf("\nbare TLS handshakes: %.0f per second, 1000 in %.2f s; client and broker share this machine\nload average before: %s\n\n", handshakes, 1000/handshakes, load)
	plain, secure, other, otherSecure := &all[0], &all[1], &all[2], &all[3]
	r := result{
		MsgsPlain: median(plain.rates), MsgsMTLS: median(secure.rates), Ratio: median(secure.rates) / median(plain.rates),
		P99Ms: median(secure.p99s), P99PlainMs: median(plain.p99s), KBConn: secure.kb, KBConnFirst: secure.kbAtFirst, KBConnPlain: plain.kb,
		Storm: median(secure.storms), Handshakes: handshakes, StormFloor: 1000 / handshakes,
		MosquittoMsgs: median(other.rates), MosquittoMTLS: median(otherSecure.rates), MosquittoP99: median(otherSecure.p99s),
		MosquittoKB: otherSecure.kb, MosquittoS: median(otherSecure.storms), Load: load,
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		t.Fatal(err)
	}
}
