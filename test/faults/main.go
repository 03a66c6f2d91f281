// The program faults kills and disconnects the parts of K8s4r while they work, corrupts their
// messages and files, and compares what ran with what was dispatched (docs/explanation/faults.md).
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

// scenario is one kind of fault.
type scenario struct {
	name string
	// run runs the scenario and returns its counts. The seed determines its faults, as far as timing
	// allows.
	run func(t testing.TB, seed uint64) figures
}

// figures are the counts of a scenario. Also holds counts that only this scenario has.
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

// scenarios lists all scenarios at full length.
var scenarios = []scenario{
	{"agent-kills", func(t testing.TB, seed uint64) figures { return agentKills(t, seed, 10, 20_000, 1000) }},
	{"broker-kills", func(t testing.TB, seed uint64) figures { return brokerKills(t, seed, 3*time.Minute) }},
	{"messages", func(t testing.TB, seed uint64) figures { return disturbMessages(t, seed, 3*time.Minute) }},
	{"control-kills", func(t testing.TB, seed uint64) figures { return controlKills(t, seed, 3*time.Minute) }},
	{"journal-cuts", func(t testing.TB, seed uint64) figures { return journalCuts(t, seed, cutEverywhere) }},
	{"state-cuts", func(t testing.TB, seed uint64) figures { return stateCuts(t, seed, cutEverywhere) }},
	{"partitions", func(t testing.TB, _ uint64) figures { return runPartitions(t, 1) }},
	{"offline-restarts", func(t testing.TB, seed uint64) figures {
		return offlineRestarts(t, seed, restartFaults{robots: 4, cuts: 8, kills: 8})
	}},
	{"reboots", func(t testing.TB, seed uint64) figures {
		return reboots(t, seed, rebootFaults{robots: 4, cuts: 4, boots: 6, takeovers: 3, offsets: cutEverywhere})
	}},
	{"rollouts", func(t testing.TB, seed uint64) figures {
		return rollouts(t, seed, rolloutFaults{robots: 6, rollouts: 16})
	}},
}

var (
	seed = flag.Uint64("seed", uint64(time.Now().Unix()), "`seed` of the random faults; each run prints its seed")
	only = flag.String("only", "", "run only the scenarios with these `names`, separated by commas (default: all)")
)

func main() {
	flag.Parse()
	os.Exit(runAll())
}

// runAll runs the chosen scenarios and returns the exit status.
func runAll() (status int) {
	all := map[string]figures{}
	names, failed := []string{}, []string{}
	for _, s := range scenarios {
		if status == testkit.StatusInterrupted {
			break
		}
		if *only != "" && !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		fmt.Printf("make faults FAULTS='-seed %d -only %s'\n", *seed, s.name)
		began := time.Now()
		ended := testkit.RunProgram(func(t testing.TB) {
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
	printReport(names, failed, all)
	return status
}

// printReport prints the counts as a table, and as JSON in the last line.
func printReport(names, failed []string, all map[string]figures) {
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
