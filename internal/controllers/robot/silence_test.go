package robot

import (
	"context"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/kit"
)

// liveSlice is an API server with one slice.
type liveSlice struct {
	client.Reader
	slice *v1alpha1.HeartbeatSlice
	reads int
}

// Get reads the slice.
func (l *liveSlice) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	l.reads++
	l.slice.DeepCopyInto(into.(*v1alpha1.HeartbeatSlice))
	return nil
}

func sliceSeenAt(version int, at time.Time) *v1alpha1.HeartbeatSlice {
	return &v1alpha1.HeartbeatSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "heartbeats-0", UID: "s", ResourceVersion: strconv.Itoa(version)},
		Heartbeats: []v1alpha1.RobotHeartbeat{{Robot: "r1", UID: "uid", Time: metav1.NewMicroTime(at)}},
	}
}

// A robot is silent by its slice, which is read past the cache before the robot goes Offline.
func TestObserveSilence(t *testing.T) {
	const offlineAfter = 5 * time.Minute
	for _, c := range []struct {
		name        string
		phase       string
		inSlice     bool
		watched     time.Duration // since the entry in the cache changed
		isNewerLive bool
		want        time.Duration
		reads       int
	}{
		{name: "a server of the version before writes the status", phase: "Online", watched: time.Minute, want: time.Hour},
		{name: "a heartbeat in the slice", phase: "Online", inSlice: true, watched: time.Minute, want: time.Minute},
		{name: "silent by the cache and the API server", phase: "Online", inSlice: true, watched: offlineAfter, want: offlineAfter, reads: 1},
		{name: "the cache is behind", phase: "Online", inSlice: true, watched: offlineAfter, isNewerLive: true, want: 0, reads: 1},
		{name: "of an Offline robot nothing is read", phase: "Offline", inSlice: true, watched: offlineAfter, want: offlineAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := time.Hour
			uptime := func() time.Duration { return up }
			live := &liveSlice{slice: sliceSeenAt(1, noon)}
			if c.isNewerLive {
				live.slice = sliceSeenAt(2, noon.Add(time.Minute))
			}
			k := &Controller{Config: Config{OfflineAfter: offlineAfter}.WithDefaults(), Heartbeats: kit.NewHeartbeats(live, uptime)}
			k.heartbeats = &kit.Sightings[types.UID, time.Time]{Uptime: uptime}
			r := newInput(c.phase, lastHeartbeat(0)).Robot
			r.Namespace, r.UID = "ns", "uid"
			if c.inSlice {
				r.Status.HeartbeatSlice = "heartbeats-0"
			}
			k.heartbeats.Observe(r.UID, heartbeatID(r))
			up += time.Hour - c.watched
			k.Heartbeats.ObserveSlice(sliceSeenAt(1, noon))
			up += c.watched
			silence, isFirst, err := k.observeSilence(t.Context(), r)
			if isFirst == c.isNewerLive {
				t.Errorf("it may be silent for longer: %v", isFirst)
			}
			if err != nil || silence != c.want || live.reads != c.reads {
				t.Errorf("silent for %s after %d reads, want %s after %d; %v", silence, live.reads, c.want, c.reads, err)
			}
		})
	}
}
