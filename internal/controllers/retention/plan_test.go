package retention

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// finishedAgo returns an archived job that ended so long before noon.
func finishedAgo(name string, ago time.Duration) Object {
	return Object{Kind: "job", FinishedAt: noon.Add(-ago), Archived: true, Object: &v1alpha1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

func unarchived(o Object) Object { o.Archived = false; return o }

// deletions returns the planned deletions as "name limit".
func deletions(a Actions) string {
	var all []string
	for _, d := range a.Delete {
		all = append(all, d.Object.Object.GetName()+" "+d.Limit)
	}
	return strings.Join(all, ", ")
}

func TestPlan(t *testing.T) {
	three := []Object{finishedAgo("new", time.Hour), finishedAgo("old", 30*time.Hour), finishedAgo("middle", 2*time.Hour)}
	for _, c := range []struct {
		name     string
		limits   Limits
		archives bool
		finished []Object
		want     string
		requeue  time.Duration // from noon; 0 is none
	}{
		{name: "off", limits: Limits{Count: 1}, finished: three},
		{name: "by age; the next expires in 22 h", limits: Limits{Age: 24 * time.Hour}, finished: three, want: "old age", requeue: 22 * time.Hour},
		{name: "exactly at its age", limits: Limits{Age: time.Hour}, finished: three[:1], want: "new age"},
		{name: "a moment before its age", limits: Limits{Age: time.Hour + 1}, finished: three[:1], requeue: 1},
		{name: "by count, those that ended first", limits: Limits{Age: 48 * time.Hour, Count: 1}, finished: three, want: "old count, middle count", requeue: 47 * time.Hour},
		{name: "as many as allowed", limits: Limits{Age: 48 * time.Hour, Count: 3}, finished: three, requeue: 18 * time.Hour},
		{name: "by age and count", limits: Limits{Age: 24 * time.Hour, Count: 1}, finished: three, want: "old age, middle count", requeue: 23 * time.Hour},
		{
			name: "not before it is archived, and no newer one instead", limits: Limits{Age: 48 * time.Hour, Count: 2}, archives: true,
			finished: []Object{three[0], unarchived(three[1]), three[2]}, requeue: 46 * time.Hour,
		},
		{name: "without an archive the mark does not count", limits: Limits{Age: 24 * time.Hour}, finished: []Object{unarchived(three[1])}, want: "old age"},
		{name: "nothing has finished", limits: Limits{Age: time.Hour, Count: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Plan(noon, Input{Limits: c.limits, Archives: c.archives, Finished: c.finished})
			if got := deletions(out); got != c.want || len(out.Reasons) != len(out.Delete) {
				t.Errorf("deletes %q with reasons %q, want %q", got, out.Reasons, c.want)
			}
			if c.requeue == 0 != out.RequeueAt.IsZero() || c.requeue != 0 && !out.RequeueAt.Equal(noon.Add(c.requeue)) {
				t.Errorf("plans again at %s, want after %s", out.RequeueAt, c.requeue)
			}
		})
	}
}

func TestPlan_DeletesInBatches(t *testing.T) {
	var many []Object
	for i := range maxDeletes + 1 {
		many = append(many, finishedAgo(fmt.Sprintf("j%03d", i), time.Hour))
	}
	out := Plan(noon, Input{Limits: Limits{Age: time.Minute}, Finished: many})
	if len(out.Delete) != maxDeletes || !out.RequeueAt.Equal(noon.Add(batchInterval)) {
		t.Errorf("%d deletions, again at %s", len(out.Delete), out.RequeueAt)
	}
}

// Plans until nothing changes keep exactly the newest, whatever the order of the input.
func TestPlan_KeepsTheNewest(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		limits := Limits{Age: time.Duration(1+r.IntN(100)) * time.Minute, Count: r.IntN(60)}
		var all []Object
		for i := range r.IntN(300) {
			all = append(all, finishedAgo(fmt.Sprintf("j%d", i), time.Duration(r.IntN(120))*time.Minute))
		}
		left := slices.Clone(all)
		for {
			r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
			out := Plan(noon, Input{Limits: limits, Archives: true, Finished: left})
			if len(out.Delete) == 0 {
				break
			}
			left = slices.DeleteFunc(left, func(o Object) bool {
				return slices.ContainsFunc(out.Delete, func(d Delete) bool { return d.Object.Object == o.Object })
			})
		}
		slices.SortFunc(all, compareFinished)
		want := slices.DeleteFunc(slices.Clone(all), func(o Object) bool { return !noon.Before(o.FinishedAt.Add(limits.Age)) })
		if limits.Count > 0 {
			want = want[max(0, len(want)-limits.Count):]
		}
		slices.SortFunc(left, compareFinished)
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d, %+v: %d of %d are left, want %d", seed, limits, len(left), len(all), len(want))
		}
	}
}
