package kit

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// sliceAPI is an API server with one slice, or none, that counts its reads.
type sliceAPI struct {
	client.Reader
	slice *v1alpha1.HeartbeatSlice
	err   error
	reads int
}

// Get reads the slice.
func (a *sliceAPI) Get(_ context.Context, k client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	a.reads++
	if a.err != nil {
		return a.err
	}
	if a.slice == nil {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("heartbeatslices").GroupResource(), k.Name)
	}
	a.slice.DeepCopyInto(into.(*v1alpha1.HeartbeatSlice))
	return nil
}

// sliceAt returns a version of the slice, with the minute of the last heartbeat of each robot.
func sliceAt(version int, minutes map[string]int) *v1alpha1.HeartbeatSlice {
	s := &v1alpha1.HeartbeatSlice{
		ObjectMeta:           metav1.ObjectMeta{Namespace: "n", Name: "heartbeats-0", UID: "s", ResourceVersion: strconv.Itoa(version)},
		AcknowledgmentPeriod: metav1.Duration{Duration: time.Minute},
	}
	for _, name := range []string{"r1", "r2"} {
		if m, is := minutes[name]; is {
			at := metav1.NewMicroTime(time.Date(2026, 5, 1, 12, m, 0, 0, time.UTC))
			s.Heartbeats = append(s.Heartbeats, v1alpha1.RobotHeartbeat{Robot: name, UID: types.UID("uid-" + name), Time: at})
		}
	}
	return s
}

func robotInSlice(name string) *v1alpha1.Robot {
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID("uid-" + name)}}
	r.Status.HeartbeatSlice = "heartbeats-0"
	return r
}

func TestHeartbeats_CountFromChangeOfEntry(t *testing.T) {
	up := time.Hour
	h := NewHeartbeats(&sliceAPI{}, func() time.Duration { return up })
	r := robotInSlice("r1")
	h.ObserveSlice(sliceAt(1, map[string]int{"r1": 0, "r2": 0}))
	up += 30 * time.Second
	if c, ok := h.ObserveRobot(r); !ok || c != (SliceContact{Silence: 30 * time.Second, IsFirst: true, HasEntry: true, Unacknowledged: -30 * time.Second}) {
		t.Errorf("after the first version: %+v", c)
	}
	h.ObserveSlice(sliceAt(2, map[string]int{"r1": 0, "r2": 1})) // of another robot
	up += 60 * time.Second
	if c, _ := h.ObserveRobot(r); c.Silence != 90*time.Second || c.Unacknowledged != 30*time.Second || !c.IsFirst {
		t.Errorf("after a heartbeat of another robot: %+v", c)
	}
	h.ObserveSlice(sliceAt(3, map[string]int{"r1": -60, "r2": 1})) // the clock of the server was set back
	if c, _ := h.ObserveRobot(r); c != (SliceContact{HasEntry: true, Unacknowledged: -time.Minute}) {
		t.Errorf("after a heartbeat: %+v", c)
	}
}

// Without a slice in the status, the status alone counts.
func TestHeartbeats_IgnoreRobotsWithoutSlice(t *testing.T) {
	h := NewHeartbeats(&sliceAPI{}, func() time.Duration { return 0 })
	h.ObserveSlice(sliceAt(1, map[string]int{"r1": 0}))
	r := robotInSlice("r1")
	r.Status.HeartbeatSlice = ""
	if _, ok := h.ObserveRobot(r); ok {
		t.Error("the slice counts although the server may not write to it")
	}
	if _, ok := (*Heartbeats)(nil).ObserveRobot(robotInSlice("r1")); ok {
		t.Error("without slices there is a contact")
	}
}

// The entry of a deleted robot of the same name does not count.
func TestHeartbeats_CountFromWhenEntryIsMissing(t *testing.T) {
	var up time.Duration
	h := NewHeartbeats(&sliceAPI{}, func() time.Duration { return up })
	h.ObserveSlice(sliceAt(1, map[string]int{"r1": 0}))
	again := robotInSlice("r1")
	again.UID = "uid-again"
	h.ObserveRobot(again)
	up = time.Minute
	if c, ok := h.ObserveRobot(again); !ok || c != (SliceContact{Silence: time.Minute, IsFirst: true}) {
		t.Errorf("%+v", c)
	}
	r := robotInSlice("r1")
	h.ObserveDeletion(sliceAt(2, nil))
	up = 2 * time.Minute
	if c, _ := h.ObserveRobot(r); c.Silence > time.Minute || c.HasEntry {
		t.Errorf("after the deletion of the slice: %+v", c)
	}
	if c, _ := h.ObserveRobot(again); c.Silence != time.Minute {
		t.Errorf("silent since before the deletion of a slice that may have had an entry: %+v", c)
	}
	h.ObserveSlice(sliceAt(3, map[string]int{"r1": 2}))
	if c, _ := h.ObserveRobot(r); !c.HasEntry || c.Silence != 0 {
		t.Errorf("after it was created again: %+v", c)
	}
}

// A watch that is behind must not take back what was read past it.
func TestHeartbeats_RefreshReadsPastTheCache(t *testing.T) {
	var up time.Duration
	api := &sliceAPI{slice: sliceAt(9, map[string]int{"r1": 9})}
	h := NewHeartbeats(api, func() time.Duration { return up })
	r := robotInSlice("r1")
	h.ObserveSlice(sliceAt(1, map[string]int{"r1": 0}))
	up = time.Hour
	for range 2 {
		if err := h.Refresh(t.Context(), r, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if c, _ := h.ObserveRobot(r); c.Silence != 0 || api.reads != 1 {
		t.Errorf("%+v after %d reads", c, api.reads)
	}
	up += time.Minute
	h.ObserveSlice(sliceAt(5, map[string]int{"r1": 5}))
	if c, _ := h.ObserveRobot(r); c.Silence != time.Minute {
		t.Errorf("after an older version: %+v", c)
	}
	api.err = errors.New("the API server is down")
	if err := h.Refresh(t.Context(), r, time.Second); err == nil {
		t.Error("a failed read is no error")
	}
	api.err, api.slice = nil, nil
	if err := h.Refresh(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if c, _ := h.ObserveRobot(r); c.HasEntry || c.Silence != 0 {
			t.Errorf("when the slice is gone: %+v", c)
		}
		h.ObserveSlice(sliceAt(9, map[string]int{"r1": 9})) // the watch is behind
	}
	h.ObserveSlice(sliceAt(11, map[string]int{"r1": 11}))
	if c, _ := h.ObserveRobot(r); !c.HasEntry {
		t.Errorf("when it was created again: %+v", c)
	}
}

func TestHeartbeats_LastHeartbeatIsTheLatest(t *testing.T) {
	minute := func(n int) *metav1.MicroTime { return &sliceAt(1, map[string]int{"r1": n}).Heartbeats[0].Time }
	for _, c := range []struct {
		name          string
		slices        bool // the Heartbeats are not nil
		named         bool // the status names the slice
		status, slice *metav1.MicroTime
		want          *metav1.MicroTime
	}{
		{"none", true, true, nil, nil, nil},
		{"in the slice", true, true, minute(1), minute(2), minute(2)},
		{"in the status", true, true, minute(3), minute(2), minute(3)},
		{"the slice was not observed", true, true, minute(1), nil, minute(1)},
		{"the status names no slice", true, false, minute(1), minute(2), minute(1)},
		{"without slices", false, true, minute(1), nil, minute(1)},
	} {
		var h *Heartbeats
		if c.slices {
			h = NewHeartbeats(&sliceAPI{}, func() time.Duration { return 0 })
		}
		if c.slice != nil {
			h.ObserveSlice(sliceAt(1, map[string]int{"r1": c.slice.Minute()}))
		}
		r := robotInSlice("r1")
		r.Status.LastHeartbeatTime = c.status
		if !c.named {
			r.Status.HeartbeatSlice = ""
		}
		got := h.LastHeartbeat(r)
		if c.want == nil && !got.IsZero() || c.want != nil && !got.Equal(c.want.Time) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
