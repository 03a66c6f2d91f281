// The program bench/fleet measures what a fleet of robots costs: memory and processor time of each
// program, writes of heartbeats, the return of all robots after a restart of the broker, and the time
// from submission to start meanwhile. Simulated robots use MQTT with certificates; each program of
// K8s4r runs in a process of its own. It also measures cycles of the scheduler over 100,000 Robots.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"k8s4r.io/k8s4r/internal/testkit"
)

var (
	robotCounts   = flag.String("robots", "1000,5000,20000", "numbers of robots whose steady state is measured, ascending")
	stormRobots   = flag.Int("storm", 10000, "robots that are connected when the broker restarts; 0: no restart")
	useMosquitto  = flag.Bool("mosquitto", false, "use Mosquitto in place of the embedded broker")
	settle        = flag.Duration("settle", time.Minute, "time before each steady state")
	window        = flag.Duration("window", 2*time.Minute, "time of each steady state; heartbeats are written every 33 to 100 s")
	starts        = flag.Int("starts", 200, "Jobs that are started while robots flap")
	startInterval = flag.Duration("start-interval", 200*time.Millisecond, "time between two Jobs")
	systemJob     = flag.Bool("system-job", true, "run a Job of type system on all robots")
	cycleRobots   = flag.Int("cycle-robots", 100000, "Robots of the scheduler's cycles; 0: none")
	cycles        = flag.Int("cycles", 100, "cycles of the scheduler")
	onlyCycles    = flag.Bool("only-cycles", false, "measure only the scheduler")
	figures       = flag.Bool("figures", false, "fail if a figure exceeds its bound")
	serve         = flag.String("serve", "", "internal: run the embedded broker at this address")
	caDir         = flag.String("ca-dir", "", "internal: directory of the robots' CA")
)

// flappingShare is the share of the robots that break their connections while starts are measured.
const flappingShare = 0.01

func main() {
	flag.Parse()
	if *serve != "" {
		os.Exit(testkit.RunProgram(func(t testing.TB) { serveBroker(t, *serve, *caDir) }))
	}
	os.Exit(testkit.RunProgram(runBenchmark))
}

// result is the last line of the output. Figures of robots are of the largest fleet, memory that of one
// more robot.
type result struct {
	Broker             string  `json:"broker"`
	Robots             int     `json:"robots"`
	KBBroker           float64 `json:"kb_per_robot_broker"`
	KBServer           float64 `json:"kb_per_robot_server"`
	KBManager          float64 `json:"kb_per_robot_manager"`
	KBConsole          float64 `json:"kb_per_robot_console"`
	KBAPIServer        float64 `json:"kb_per_robot_api_server"`
	Cores              float64 `json:"cpu_cores"` // broker, server, manager, API server and etcd
	WritesPerRobotHour float64 `json:"writes_per_robot_hour"`
	StormRobots        int     `json:"storm_robots"`
	StormS             float64 `json:"storm_10000_s"` // scaled to 10,000
	StormResumed       float64 `json:"storm_resumed"` // share of the TLS sessions
	StormStartP99Ms    float64 `json:"storm_start_p99_ms"`
	StartP50Ms         float64 `json:"start_p50_ms"`
	StartP99Ms         float64 `json:"start_p99_ms"`
	SystemStartedS     float64 `json:"system_job_started_s"`
	SystemShownS       float64 `json:"system_job_shown_s"`
	CycleMs            float64 `json:"cycle_ms_100000"` // 99th percentile
	CycleEventsMs      float64 `json:"cycle_events_ms_100000"`
}

// The bounds of the figures.
const (
	maxCores        = 1
	maxKBConnection = 60
	maxWrites       = 4
	maxStormSeconds = 90
	maxStartMs      = 1000
	maxCycleMs      = 1000
)

func runBenchmark(t testing.TB) {
	r := result{Broker: "embedded"}
	if *useMosquitto {
		r.Broker = "mosquitto"
	}
	if *cycleRobots > 0 {
		m := measureCycles(t, *cycleRobots, *cycles)
		r.CycleMs, r.CycleEventsMs = m.cycles.quantileMs(0.99), m.events.quantileMs(0.99)
		fmt.Printf("cycles of the scheduler with %d robots: p50 %.0f ms, p99 %.0f ms; events before a cycle: p50 %.0f ms\n\n",
			*cycleRobots, m.cycles.quantileMs(0.5), r.CycleMs, m.events.quantileMs(0.5))
	}
	if !*onlyCycles {
		measureFleet(t, &r)
	}
	if *figures {
		r.checkBounds(t)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		t.Fatal(err)
	}
}

// parseCounts returns the numbers of robots, bounded by the descriptors of a process.
func parseCounts(t testing.TB) (counts []int) {
	for _, text := range strings.Split(*robotCounts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || len(counts) > 0 && n <= counts[len(counts)-1] {
			t.Fatalf("-robots=%s: must be ascending numbers, separated by commas", *robotCounts)
		}
		counts = append(counts, n)
	}
	most := raiseDescriptorLimit(t, max(*stormRobots, counts[len(counts)-1]))
	for i, n := range counts {
		if n > most {
			fmt.Printf("%d robots in place of %d: the hard limit of descriptors admits no more\n", most, n)
			counts[i] = most
		}
	}
	*stormRobots = min(*stormRobots, most)
	return slices.Compact(counts)
}

// measureFleet grows a fleet and measures it at each size.
func measureFleet(t testing.TB, r *result) {
	counts := parseCounts(t)
	r.Robots = counts[len(counts)-1]
	s := startSystem(t, max(r.Robots, *stormRobots))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	var all []steady
	stormed := *stormRobots == 0
	for _, n := range counts {
		if !stormed && n >= *stormRobots {
			s.addRobots(ctx, *stormRobots)
			r.setStorm(s.measureStorm())
			stormed = true
		}
		s.addRobots(ctx, n)
		m := s.measureSteady()
		all = append(all, m)
		m.print()
	}
	r.setSteady(all)
	if *starts > 0 {
		times := s.measureFlapping()
		r.StartP50Ms, r.StartP99Ms = times.quantileMs(0.5), times.quantileMs(0.99)
	}
	if *systemJob {
		started, shown := s.measureSystemJob()
		r.SystemStartedS, r.SystemShownS = started.Seconds(), shown.Seconds()
	}
	printSlopes(all)
}

func (r *result) setStorm(m storm) {
	r.StormRobots, r.StormResumed = m.robots, m.resume
	r.StormS = m.took.Seconds() * 10000 / float64(m.robots)
	if len(m.starts) > 0 {
		r.StormStartP99Ms = m.starts.quantileMs(0.99)
	}
	fmt.Printf("%d robots are back %.1f s after the restart of the broker; %.0f %% of the TLS sessions were resumed; %d starts meanwhile: p50 %.0f ms, p99 %.0f ms\n\n",
		m.robots, m.took.Seconds(), 100*m.resume, len(m.starts), m.starts.quantileMs(0.5), m.starts.quantileMs(0.99))
}

func (r *result) setSteady(all []steady) {
	last := all[len(all)-1]
	r.Cores, r.WritesPerRobotHour = last.totalCores(), last.totalWrites()
	for name, kb := range map[string]*float64{
		"broker": &r.KBBroker, "k8s4r-server": &r.KBServer, "k8s4r-manager": &r.KBManager, "k8s4r-console": &r.KBConsole, "API server and etcd": &r.KBAPIServer,
	} {
		*kb = math.Round(10*kbPerRobot(all, name)) / 10
	}
}

func (m steady) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%d robots\tMB\tcores\t\n", m.robots)
	for _, name := range parts {
		fmt.Fprintf(w, "%s\t%.0f\t%.3f\t\n", name, float64(m.rss[name])/1e6, m.cores[name])
	}
	fmt.Fprintf(w, "all but the console\t\t%.3f\t\n", m.totalCores())
	w.Flush()
	fmt.Printf("writes for a robot and hour: %.2f %v\n\n", m.totalWrites(), m.writes)
}

// printSlopes prints what one more robot costs.
func printSlopes(all []steady) {
	if len(all) < 2 {
		return
	}
	first, last := all[0], all[len(all)-1]
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "from the smallest to the largest fleet\tkB for one more robot\tcores for 1000 more\t")
	for _, name := range parts {
		fmt.Fprintf(w, "%s\t%.1f\t%.4f\t\n", name, kbPerRobot(all, name), 1000*(last.cores[name]-first.cores[name])/float64(last.robots-first.robots))
	}
	w.Flush()
	fmt.Println()
}

// checkBounds fails the benchmark if a figure exceeds its bound.
func (r result) checkBounds(t testing.TB) {
	for _, c := range []struct {
		what      string
		is, bound float64
	}{
		{"processors in steady state", r.Cores, maxCores},
		{"kB of the broker for a connection", r.KBBroker, maxKBConnection},
		{"writes for a robot and hour", r.WritesPerRobotHour, maxWrites},
		{"seconds until 10,000 robots are back", r.StormS, maxStormSeconds},
		{"99th percentile of starts during the return, in ms", r.StormStartP99Ms, maxStartMs},
		{"99th percentile of starts while robots flap, in ms", r.StartP99Ms, maxStartMs},
		{"99th percentile of cycles of the scheduler, in ms", r.CycleMs, maxCycleMs},
	} {
		if c.is > c.bound {
			t.Errorf("%s: %.1f, want at most %.0f", c.what, c.is, c.bound)
		}
	}
}
