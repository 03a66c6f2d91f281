package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Bounds of a Rollout that are checked before it is sent.
const (
	maxWaves      = 32
	maxUnits      = 1_000_000
	maxLabels     = 64
	maxRetry      = 10
	maxSpecText   = 4096
	maxDuration   = 999_999 * time.Hour
	allPercent    = 100
	waveSpecUsage = "such as 10%, 5 or label=site:hall, followed by options such as ,name=canary,pause=1h,healthy-for=2m,abort-at=20%:5,approval"
)

// parseWaves parses wave specs. It appends a wave with all units if the last one is not, and reports whether
// it did.
func parseWaves(specs []string) (waves []robotv1.RolloutWave, added bool, err error) {
	for i, spec := range specs {
		w, err := parseWave(spec, fmt.Sprintf("wave-%d", i+1))
		if err != nil {
			return nil, false, fmt.Errorf("--wave=%s: %w", shortenText(spec, 80), err)
		}
		if err := checkNextWave(waves, w); err != nil {
			return nil, false, fmt.Errorf("--wave=%s: %w", shortenText(spec, 80), err)
		}
		waves = append(waves, w)
	}
	if n := len(waves); n == 0 || !coversAll(&waves[n-1]) {
		all := int32(allPercent)
		waves, added = append(waves, robotv1.RolloutWave{Name: unusedWaveName(waves), Percent: &all}), true
	}
	if len(waves) > maxWaves {
		return nil, false, fmt.Errorf("--wave: at most %d waves, with the last one that has 100%%", maxWaves)
	}
	return waves, added, nil
}

func coversAll(w *robotv1.RolloutWave) bool { return w.Percent != nil && *w.Percent == allPercent }

func unusedWaveName(waves []robotv1.RolloutWave) string {
	for i := len(waves) + 1; ; i++ {
		name := fmt.Sprintf("wave-%d", i)
		if !slices.ContainsFunc(waves, func(w robotv1.RolloutWave) bool { return w.Name == name }) {
			return name
		}
	}
}

// checkNextWave returns an error for a wave that the API server would reject, or that would include no units,
// because percentages and counts include the waves before.
func checkNextWave(before []robotv1.RolloutWave, w robotv1.RolloutWave) error {
	for i := range before {
		b := &before[i]
		switch {
		case b.Name == w.Name:
			return fmt.Errorf("another wave has the name %s; set name=", w.Name)
		case coversAll(b):
			return fmt.Errorf("wave %s has 100%% already: no unit is left", b.Name)
		case b.Percent != nil && w.Percent != nil && *w.Percent <= *b.Percent:
			return fmt.Errorf("must be above the %d%% of wave %s, because it includes the waves before", *b.Percent, b.Name)
		case b.Count != nil && w.Count != nil && *w.Count <= *b.Count:
			return fmt.Errorf("must be above the %d of wave %s, because it includes the waves before", *b.Count, b.Name)
		}
	}
	return nil
}

// parseWave parses a wave spec: parts that are separated by commas, of which one selects units.
func parseWave(spec, name string) (robotv1.RolloutWave, error) {
	w := robotv1.RolloutWave{Name: name}
	if len(spec) > maxSpecText {
		return w, fmt.Errorf("must have at most %d characters", maxSpecText)
	}
	for part := range strings.SplitSeq(spec, ",") {
		key, value, hasValue := strings.Cut(strings.TrimSpace(part), "=")
		var err error
		switch {
		case hasValue:
			err = setWaveOption(&w, key, value)
		case key == "approval":
			w.Approval = robotv1.ApprovalManual
		default:
			err = setWaveSize(&w, key)
		}
		if err != nil {
			return w, err
		}
	}
	return w, checkWaveSize(&w)
}

// setWaveSize sets the percentage or the count.
func setWaveSize(w *robotv1.RolloutWave, text string) error {
	if w.Percent != nil || w.Count != nil {
		return fmt.Errorf("%q: the wave has a size already; separate waves with --wave", text)
	}
	n, err := parseShare(text)
	switch {
	case err != nil:
		return fmt.Errorf("%q: must be a wave %s", text, waveSpecUsage)
	case n.Type == intstr.String:
		percent := percentOf(n)
		w.Percent = &percent
	default:
		w.Count = &n.IntVal
	}
	return nil
}

func checkWaveSize(w *robotv1.RolloutWave) error {
	switch sized := w.Percent != nil || w.Count != nil; {
	case sized && len(w.RobotSelector) > 0:
		return fmt.Errorf("a wave has either a size or labels: make two waves, the first with the labels")
	case !sized && len(w.RobotSelector) == 0:
		return fmt.Errorf("selects no units: must be a wave %s", waveSpecUsage)
	}
	return nil
}

func setWaveOption(w *robotv1.RolloutWave, key, value string) (err error) {
	switch key {
	case "name":
		w.Name = value
		return checkWaveName(value)
	case "label":
		return addWaveLabel(w, value)
	case "pause":
		w.Pause, err = parseRolloutDuration("pause", value)
	case "healthy-for":
		w.HealthyFor, err = parseRolloutDuration("healthy-for", value)
	case "abort-at":
		w.AbortAt, err = parseAbort("abort-at", value)
	default:
		err = fmt.Errorf("unknown option %s: must be name, label, pause, healthy-for, abort-at or approval", key)
	}
	return err
}

func checkWaveName(name string) error {
	problems := validation.IsDNS1123Label(name)
	return errorUnless(len(problems) == 0, "name=%s: must be lower case letters, digits and dashes, at most 63, and start and end with a letter or digit", shortenText(name, 40))
}

// addWaveLabel adds KEY:VALUE to the labels that a robot must have.
func addWaveLabel(w *robotv1.RolloutWave, text string) error {
	key, value, found := strings.Cut(text, ":")
	if !found || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return fmt.Errorf("label=%s: must be KEY:VALUE, such as site:hall", text)
	}
	if w.RobotSelector == nil {
		w.RobotSelector = map[string]string{}
	}
	if _, has := w.RobotSelector[key]; has {
		return fmt.Errorf("label=%s: the label %s is given twice", text, key)
	}
	w.RobotSelector[key] = value
	return errorUnless(len(w.RobotSelector) <= maxLabels, "label: at most %d labels", maxLabels)
}

func parseRolloutDuration(name, text string) (*robotv1.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxDuration || d > 0 && d < time.Millisecond {
		return nil, fmt.Errorf("%s=%s: must be a duration such as 90s, 5m or 1h30m, at most 999999h", name, text)
	}
	return robotv1.NewDuration(d), nil
}

var sharePattern = regexp.MustCompile(`^([1-9][0-9]?|100)%$`)

// parseShare parses a number of units, or a percentage of all.
func parseShare(text string) (intstr.IntOrString, error) {
	if sharePattern.MatchString(text) {
		return intstr.FromString(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 || n > maxUnits {
		return intstr.IntOrString{}, fmt.Errorf("must be a number from 1 to %d, or a percentage from 1%% to 100%%", maxUnits)
	}
	return intstr.FromInt32(int32(n)), nil
}

// percentOf returns the number of a valid percentage.
func percentOf(share intstr.IntOrString) int32 {
	n, err := strconv.ParseInt(strings.TrimSuffix(share.StrVal, "%"), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// parseAbort parses P%[:MIN].
func parseAbort(name, text string) (*robotv1.RolloutAbort, error) {
	percent, finished, hasMin := strings.Cut(text, ":")
	share, err := parseShare(percent)
	abort := &robotv1.RolloutAbort{Percent: percentOf(share), MinFinished: 1}
	if err == nil && hasMin {
		var n int64
		n, err = strconv.ParseInt(finished, 10, 32)
		abort.MinFinished = int32(n)
	}
	if err != nil || share.Type != intstr.String || abort.MinFinished < 1 || abort.MinFinished > maxUnits {
		return nil, fmt.Errorf("%s=%s: must be a percentage of failed units, such as 20%%, or with the number of units that must have finished, such as 20%%:5", name, text)
	}
	return abort, nil
}
