// The program bench/rollout measures Rollouts of a fleet: a good revision in waves, a bad one that must
// go back by itself, and robots that are out of contact meanwhile and follow later. API server, server
// and embedded broker run in one process, and the manager in another; simulated robots use MQTT with
// certificates.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	robots       = flag.Int("robots", 1000, "simulated robots, from 20 to 4000")
	waves        = flag.String("waves", "1,10,100", "percentages of all robots that the waves reach, ascending up to 100")
	awayPercent  = flag.Int("out-of-contact", 10, "percentage of the robots that are out of contact during the Rollouts")
	flapPercent  = flag.Int("flapping", 5, "percentage of the robots that lose and regain their contact every few seconds")
	maxParallel  = flag.Int("parallel", 100, "robots that may be changing at the same time")
	seed         = flag.Uint64("seed", 1, "seed of the choice of robots and of the times at which they flap")
	profile      = flag.String("profile", "", "file for a CPU profile of the manager during the good Rollout; empty: none")
	checkFigures = flag.Bool("figures", true, "fail if a figure exceeds its bound")
)

// maxRobots is how many connections the broker accepts from one address, without a few of others.
const maxRobots = 4000

// The bounds of the figures.
const (
	maxRevertSeconds = 120
	maxWavesStuck    = 0
)

func main() {
	flag.Parse()
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output.
type result struct {
	Robots       int `json:"robots"`
	OutOfContact int `json:"out_of_contact"`
	Flapping     int `json:"flapping"`
	// FirstWave is the number of robots in the first wave of the bad Rollout, and TouchedByBad that of the
	// robots that have ever started its revision.
	FirstWave    int `json:"first_wave"`
	TouchedByBad int `json:"touched_by_bad_version"`
	// RevertedS is the time from the first start of the bad revision until all robots with steady contact
	// that had started it have started the good one again.
	RevertedS float64 `json:"reverted_s"`
	// WavesStuck counts waves that went on although all their robots with steady contact had finished.
	WavesStuck int `json:"waves_stuck"`
	// RobotsPerS is the rate of the last wave of the good Rollout.
	RobotsPerS   float64 `json:"robots_per_s"`
	GoodRolloutS float64 `json:"good_rollout_s"`
	// FollowedS is the time from the return of the robots out of contact until all of them run the good
	// revision: the longer one of two returns.
	FollowedS float64 `json:"followed_s"`
	// WritesPerRobot are the writes of the good Rollout for each robot that it changed, without those that
	// only report contact.
	WritesPerRobot       float64 `json:"writes_per_robot"`
	ManagerCPUMsPerRobot float64 `json:"manager_cpu_ms_per_robot"`
}

// phase is a part of the benchmark. The phases run in order, on one system.
type phase struct {
	name string
	run  func(*bench)
}

var phases = []phase{
	{"good revision", (*bench).rollOutGood},
	{"half of the robots return", func(s *bench) { s.returnRobots(s.fleet.away[:len(s.fleet.away)/2]) }},
	{"bad revision", (*bench).rollOutBad},
	{"the other half returns", func(s *bench) { s.returnRobots(s.fleet.away[len(s.fleet.away)/2:]) }},
	{"flapping ends", (*bench).endFlapping},
}

func runBenchmark(t testing.TB) {
	s := startBench(t, parseWaves(t))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "phase\tseconds\tstarts of tasks\twrites\tmanager CPU s\t")
	for _, p := range phases {
		t.Logf("phase: %s", p.name)
		starts, writes, cpu, began := s.fleet.countStarts(), s.countWrites().Sum(), s.manager.CPU(), time.Now()
		p.run(s)
		fmt.Fprintf(table, "%s\t%.1f\t%d\t%d\t%.1f\t\n", p.name, time.Since(began).Seconds(), s.fleet.countStarts()-starts,
			s.countWrites().Sum()-writes, (s.manager.CPU() - cpu).Seconds())
	}
	s.result.TouchedByBad = len(s.fleet.robotsThatStarted(badVersion))
	table.Flush()
	s.printWrites()
	if *checkFigures {
		s.result.checkBounds(t)
	}
	if err := json.NewEncoder(os.Stdout).Encode(s.result); err != nil {
		t.Fatal(err)
	}
}

// parseWaves returns the percentages of the flag.
func parseWaves(t testing.TB) (all []int32) {
	for _, text := range strings.Split(*waves, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 || len(all) > 0 && int32(n) <= all[len(all)-1] {
			t.Fatalf("-waves=%s: must be ascending percentages from 1 to 100, separated by commas", *waves)
		}
		all = append(all, int32(n))
	}
	if all[len(all)-1] != 100 {
		t.Fatalf("-waves=%s: must end with 100", *waves)
	}
	for _, f := range []struct {
		name     string
		is       int
		min, max int
	}{
		{"robots", *robots, 20, maxRobots}, {"out-of-contact", *awayPercent, 0, 50}, {"flapping", *flapPercent, 0, 30}, {"parallel", *maxParallel, 1, 1_000_000},
	} {
		if f.is < f.min || f.is > f.max {
			t.Fatalf("-%s=%d: must be from %d to %d", f.name, f.is, f.min, f.max)
		}
	}
	return all
}

// checkBounds fails the benchmark if a figure exceeds its bound.
func (r *result) checkBounds(t testing.TB) {
	for _, c := range []struct {
		what      string
		is, bound float64
	}{
		{"robots that started the bad revision", float64(r.TouchedByBad), float64(r.FirstWave)},
		{"seconds until the good revision runs again", r.RevertedS, maxRevertSeconds},
		{"stuck waves", float64(r.WavesStuck), maxWavesStuck},
	} {
		if c.is > c.bound {
			t.Errorf("%s: %.1f, want at most %.0f", c.what, c.is, c.bound)
		}
	}
}
