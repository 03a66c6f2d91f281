package window

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var start = at("2026-03-27T00:00:00Z") // two days before clocks change in Berlin

// randomWindow returns a window whose times have whole minutes.
func randomWindow(rng *rand.Rand) v1alpha1.MaintenanceWindow {
	schedules := []string{
		fmt.Sprintf("%d %d * * *", rng.IntN(60), rng.IntN(24)),
		fmt.Sprintf("%d %d-%d * * *", rng.IntN(60), rng.IntN(6), 6+rng.IntN(18)),
		fmt.Sprintf("*/%d %d * * %d", 1+rng.IntN(59), rng.IntN(24), rng.IntN(7)),
		fmt.Sprintf("%d */%d %d-31 * *", rng.IntN(60), 1+rng.IntN(23), 1+rng.IntN(30)),
	}
	zones := []string{"", "Europe/Berlin", "America/Sao_Paulo", "Asia/Kathmandu"}
	lengths := []int{1, 5, 60, 61, 600, 1440, 3000, 10080}
	w := newSpec(schedules[rng.IntN(len(schedules))], zones[rng.IntN(len(zones))], time.Duration(lengths[rng.IntN(len(lengths))])*time.Minute)
	for range rng.IntN(4) {
		from := start.Add(time.Duration(rng.IntN(9*1440)) * time.Minute)
		w.Spec.Exceptions = append(w.Spec.Exceptions, v1alpha1.WindowException{
			From: metav1.NewTime(from), Until: metav1.NewTime(from.Add(time.Duration(1+rng.IntN(3000)) * time.Minute)),
		})
	}
	return w
}

// openMinutes returns in which minutes of ten days one of the windows is open: each opening opens as many minutes as
// the duration has, and each exception closes some.
func openMinutes(t *testing.T, all []v1alpha1.MaintenanceWindow) []bool {
	open := make([]bool, 10*1440)
	for i := range all {
		w, own := newWindow(&all[i]), make([]bool, len(open))
		if w.defect != nil {
			t.Fatal(w.defect)
		}
		set := func(s span, to bool) {
			for at := max(int(s.from.Sub(start).Minutes()), 0); at < min(int(s.until.Sub(start).Minutes()), len(own)); at++ {
				own[at] = to
			}
		}
		for opened := w.nextOpening(start.Add(-w.duration)); !opened.IsZero() && opened.Before(start.AddDate(0, 0, 10)); opened = w.nextOpening(opened) {
			set(span{opened, opened.Add(w.duration)}, true)
		}
		for _, e := range w.exceptions {
			set(e, false)
		}
		for at := range own {
			open[at] = open[at] || own[at]
		}
	}
	return open
}

// The state at any time is that of a calendar with a box for each minute, and so is the next change.
func TestStateOf_EqualsMinutes(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []v1alpha1.MaintenanceWindow
		for range 1 + rng.IntN(3) {
			all = append(all, randomWindow(rng))
		}
		open, calendar := openMinutes(t, all), NewCalendar(all)
		for range 50 {
			minute := rng.IntN(len(open))
			now := start.Add(time.Duration(minute)*time.Minute + time.Duration(rng.IntN(60))*time.Second)
			s := calendar.At(now).StateOf("fleet", nil)
			if s.IsOpen != open[minute] {
				t.Fatalf("seed %d: at %s open is %v, want %v: %+v", seed, now, s.IsOpen, open[minute], all)
			}
			next := minute
			for next < len(open) && open[next] == open[minute] {
				next++
			}
			want := start.Add(time.Duration(next) * time.Minute)
			if got := s.NextChange; next < len(open) && !got.Equal(want) || !got.IsZero() && got.Before(want) {
				t.Fatalf("seed %d: at %s the next change is at %s, want %s: %+v", seed, now, got, want, all)
			}
		}
	}
}

// More windows never close what is open, and more exceptions never open what is closed.
func TestStateOf_Monotonic(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		a, b := randomWindow(rng), randomWindow(rng)
		one, both := NewCalendar([]v1alpha1.MaintenanceWindow{a}), NewCalendar([]v1alpha1.MaintenanceWindow{a, b})
		less := *a.DeepCopy()
		less.Spec.Exceptions = append(less.Spec.Exceptions, randomWindow(rng).Spec.Exceptions...)
		for range 50 {
			now := start.Add(time.Duration(rng.Int64N(int64(240 * time.Hour))))
			isOpen := one.At(now).StateOf("fleet", nil).IsOpen
			if isOpen && !both.At(now).StateOf("fleet", nil).IsOpen {
				t.Fatalf("seed %d: another window closes %+v at %s", seed, a.Spec, now)
			}
			if !isOpen && StateOf(&less, now).IsOpen {
				t.Fatalf("seed %d: an exception opens %+v at %s", seed, a.Spec, now)
			}
		}
	}
}
