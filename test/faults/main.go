// The program faults kills, cuts off and confuses the parts of K8s4r while they
// work, and holds what ran against what was asked (docs/faults.md).
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

// scenario is one way to hurt a system.
type scenario struct {
	name string
	// run returns what it has seen. Its faults follow from the seed, as far as
	// time does.
	run func(t testing.TB, seed uint64) figures
}

// figures of a scenario are what is counted in each, and what only it knows.
type figures struct {
	Tasks   int            `json:"tasks"`
	Kills   int            `json:"kills"`
	Lost    int            `json:"lost"`
	Doubled int            `json:"doubled"`
	Orphans int            `json:"orphans"`
	Seconds float64        `json:"seconds"`
	Also    map[string]any `json:"also,omitempty"`
}

func (f *figures) add(g figures) {
	f.Tasks += g.Tasks
	f.Kills += g.Kills
	f.Lost += g.Lost
	f.Doubled += g.Doubled
	f.Orphans += g.Orphans
	f.Seconds += g.Seconds
}

// scenarios at their full length.
var scenarios = []scenario{
	{"agent-kills", func(t testing.TB, seed uint64) figures { return agentKills(t, seed, 10, 20_000, 1000) }},
	{"broker-kills", func(t testing.TB, seed uint64) figures { return brokerKills(t, seed, 3*time.Minute) }},
	{"messages", func(t testing.TB, seed uint64) figures { return messages(t, seed, 3*time.Minute) }},
	{"control-kills", func(t testing.TB, seed uint64) figures { return controlKills(t, seed, 3*time.Minute) }},
	{"journal-cuts", func(t testing.TB, seed uint64) figures { return journalCuts(t, seed, everyOffset) }},
	{"state-cuts", func(t testing.TB, seed uint64) figures { return stateCuts(t, seed, everyOffset) }},
	{"partitions", func(t testing.TB, _ uint64) figures { return partitions(t, 1) }},
}

var (
	seed = flag.Uint64("seed", uint64(time.Now().Unix()), "what the faults follow from; a run prints its own")
	only = flag.String("only", "", "`names` of scenarios, separated by commas (default: all)")
)

func main() {
	flag.Parse()
	os.Exit(runAll())
}

// runAll runs the scenarios that were asked for. It returns the exit status.
func runAll() (status int) {
	all := map[string]figures{}
	names, failed := []string{}, []string{}
	for _, s := range scenarios {
		if status == testkit.Stopped {
			break
		}
		if *only != "" && !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		fmt.Printf("make faults FAULTS='-seed %d -only %s'\n", *seed, s.name)
		began := time.Now()
		ended := testkit.Program(func(t testing.TB) {
			f := s.run(t, *seed)
			f.Seconds = time.Since(began).Seconds()
			all[s.name] = f
			names = append(names, s.name)
		})
		if ended != 0 {
			failed = append(failed, s.name)
		}
		status = max(status, ended)
	}
	report(names, failed, all)
	return status
}

// report prints a table for people, and all of it in the last line.
func report(names, failed []string, all map[string]figures) {
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "scenario\ttasks\tkills\tlost\tdoubled\torphans\tseconds\talso")
	var sum figures
	for _, name := range names {
		f := all[name]
		also, _ := json.Marshal(f.Also) // numbers
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f\t%s\n", name, f.Tasks, f.Kills, f.Lost, f.Doubled, f.Orphans, f.Seconds, also)
		sum.add(f)
	}
	w.Flush()
	fmt.Println()
	_ = json.NewEncoder(os.Stdout).Encode(struct {
		figures
		Failed    []string           `json:"failed"`
		Scenarios map[string]figures `json:"scenarios"`
	}{sum, failed, all})
}
