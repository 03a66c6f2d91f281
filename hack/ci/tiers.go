package main

import (
	"fmt"
	"path/filepath"
	"time"
)

// unitPackages hold tests that need no API server. Those that wait most come first, so that the
// others use the processors meanwhile.
var unitPackages = []string{
	"./internal/robot/agent", "./internal/server/...", "./internal/archive", "./internal/robot/...",
	"./api/...", "./cmd/...", "./config/...", "./hack/...", "./internal/...", "./web",
}

// unitTests runs them once, under the race detector; short, it runs a share of the random and long
// ones. The linter has vetted the code already. Tests that are marked as parallel mostly wait, so
// more of them run at once than there are processors. The models of the gateway take minutes of a
// processor, of which a package has an eighth while the other lanes run.
func unitTests(short bool) step {
	return tests("unit tests", goTest{race: true, short: short, timeout: 30 * time.Minute, side: 4, parallel: 8, packages: unitPackages})
}

// archiveTests runs what the short unit tests leave out: the archive over PostgreSQL.
func archiveTests() step {
	return tests("archive", goTest{race: true, packages: []string{"./internal/archive"}})
}

func sbomTests() step {
	return tests("sbom tests", goTest{dir: "tools/sbom", packages: []string{"./..."}})
}

// checkTier is what a developer runs while writing: two minutes on two processors.
var checkTier = tier{
	name: "check",
	report: func(took time.Duration) map[string]any {
		return map[string]any{"check_seconds": roundToTenth(took.Seconds())}
	},
	stages: []stage{
		{required: true, lanes: []lane{{shell("install", "hack/deps")}}},
		{lanes: []lane{
			{shell("lint", "make -s lint")},
			{unitTests(true), sbomTests()},
			{shell("console", "make -s web-check")},
		}},
	},
}

// binary returns the path of one of the built programs.
func binary(name string) string {
	path, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return name
	}
	return path
}

// systemTests returns a step for a suite of real processes. The processes wait most of the time,
// so more tests run at once than there are processors.
func systemTests(name string, parallel int, pkg string) step {
	return tests(name, goTest{short: true, timeout: 30 * time.Minute, parallel: parallel, packages: []string{pkg}})
}

// presubmitTier is everything that must hold before a change lands.
var presubmitTier = tier{
	name: "presubmit",
	report: func(took time.Duration) map[string]any {
		return map[string]any{"presubmit_minutes": roundToTenth(took.Minutes())}
	},
	stages: []stage{
		{required: true, lanes: []lane{{
			shell("install", "hack/deps archive browser drivers node"),
			shell("generated files", "hack/generated"),
		}}},
		{required: true, lanes: []lane{{shell("build", `make -s build "$PWD"/bin/{golangci-lint,dupl,helm,sbom}`)}}},
		// The linter uses all processors: beside other lanes it takes four times as long.
		{lanes: []lane{{
			shell("lint", "make -s lint"),
			shell("style", "make -s words commits house HOUSE=-enforce"),
			shell("console", "make -s web-check"),
		}}},
		{lanes: []lane{
			// The pages draw graphs within the timeouts of the browser's driver only if they do not wait.
			{promptShell("browser", "make -s -o build -o web web-test")},
			{
				unitTests(true), archiveTests(), sbomTests(),
				shell("bill of materials", "make -s -o build sbom"),
			},
			{
				systemTests("controllers", 6, "./test/controllers"),
				systemTests("faults", 4, "./test/faults"),
				systemTests("drivers", 2, "./test/drivers"),
				systemTests("brokers", 2, "./test/broker"),
			},
			{systemTests("e2e", 4, "./test/e2e")},
			{
				systemTests("node", 4, "./test/hostnode"),
				tests("standalone", goTest{
					dir: "standalone", env: []string{"K8S4R_BIN=" + binary("k8s4r")},
					timeout: 20 * time.Minute, parallel: 3, packages: []string{"./..."},
				}),
				shell("demo", "make -s -o build demo"),
				shell("truth", "make -s -o build truth TRUTH='-share 0.05'"),
			},
		}},
	},
}

// benchmark returns a step that runs a benchmark briefly, under the race detector: its figures do
// not count, it only has to work.
func benchmark(name, flags string) step {
	return shell("bench-"+name, fmt.Sprintf("CGO_ENABLED=1 go run -race ./test/bench/%s %s", name, flags))
}

// nightlyTier holds what takes long: random input at length, faults, measurements. Its steps run
// one after the other, so that they do not disturb each other's figures.
var nightlyTier = tier{
	name: "nightly",
	report: func(took time.Duration) map[string]any {
		return map[string]any{"nightly_minutes": roundToTenth(took.Minutes())}
	},
	stages: []stage{
		{required: true, lanes: []lane{{
			shell("install", "hack/deps archive browser drivers"),
			shell("build", "make -s build"),
		}}},
		{lanes: []lane{{
			// Only a machine without a network may go on without having looked.
			shell("vulnerabilities", "getent hosts vuln.go.dev >/dev/null || export ALLOW_OFFLINE=1; make -s -o build vulncheck"),
			shell("reproducible", "hack/reproducible"),
			shell("model", "make -s model"),
			shell("authz", "make -s -o build authz"),
			shell("parity", "make -s -o build parity"),
			unitTests(false),
			shell("properties", "hack/properties 2000"),
			tests("extreme fields", goTest{
				only: "^TestPlan_ExtremeFields$", env: []string{"EXTREME_FIELDS=all"}, timeout: 30 * time.Minute, packages: []string{"./internal/controllers/..."},
			}),
			tests("controllers at full size", goTest{only: "^TestJobFlow$", timeout: 30 * time.Minute, packages: []string{"./test/controllers"}}),
			shell("fuzz", "hack/fuzz 1m"),
			shell("faults", "make -s -o build faults"),
			shell("truth", "make -s -o build truth"),
			shell("browser measurements", "make -s -o web web-measure"),
			benchmark("agent", "-latency-tasks 50 -burst-tasks 100 -running-tasks 100"),
			benchmark("archive", "-jobs 2000 -timed 200 -asked 5"),
			benchmark("autonomy", "-crash-services 3 -crash-rounds 2 -boot-services 10 -boots 1 -offline-runs 500 -bars=false"),
			benchmark("broker", "-robots 20 -idle 100 -for 1s -rounds 1"),
			benchmark("events", "-readers 20 -rounds 5"),
			benchmark("flow", "-raw-objects 100 -raw-edges 20 -chain 50 -fan 100"),
			benchmark("fleet", "-robots 20,60 -storm 40 -settle 1s -window 5s -starts 5 -cycle-robots 1000 -cycles 4"),
			benchmark("footprint", "-window 30s"),
			benchmark("hostile", "-robots 19 -rounds 1 -tasks 20 -connections 600 -figures=false"),
			benchmark("memory", "-robots 2 -load 10s -idle 1s -finished 100"),
			benchmark("placement", "-cycles 10 -pending 1000"),
			benchmark("raycluster", "-raw-pods 100 -small 30 -large 60 -wide 50"),
			benchmark("rollout", "-robots 50 -waves 10,30,100"),
			benchmark("tasks", "-robots 16 -raw-objects 200 -latency-tasks 10 -divide-sizes-by 20"),
		}}},
	},
}
