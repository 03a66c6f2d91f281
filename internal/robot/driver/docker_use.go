package driver

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/proc"
)

const (
	// usesWait bounds the wait for what all containers use. Engines before version 28
	// look once a second, for everybody who has asked until then.
	usesWait = 5 * time.Second
	// usesAtOnce is how many containers the engine is asked about at a time. With few,
	// each handful would wait for a second of its own.
	usesAtOnce = 256
)

// containerName is that of an attempt's container. A second container of the same
// attempt is refused by the engine.
func containerName(a Attempt) string { return "k8s4r-" + a.UID + "-" + strconv.Itoa(int(a.Number)) }

// Uses asks the engine once about each container. What it does not say in time is left
// out, and asked for again the next time.
func (d *Docker) Uses(attempts []Attempt) map[Attempt]proc.Use {
	engine, err := d.engine()
	if err != nil {
		return nil
	}
	defer hangUp(engine)
	ctx, cancel := context.WithTimeout(context.Background(), usesWait)
	defer cancel()
	var (
		mu   sync.Mutex
		uses = make(map[Attempt]proc.Use, len(attempts))
		wg   sync.WaitGroup
		room = make(chan struct{}, usesAtOnce)
	)
	for _, a := range attempts {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if use, ok := useOf(ctx, engine, containerName(a)); ok {
				mu.Lock()
				defer mu.Unlock()
				uses[a] = use
			}
		})
	}
	wg.Wait()
	return uses
}

// useOf is what a container that runs has used so far.
func useOf(ctx context.Context, engine *client.Client, name string) (u proc.Use, ok bool) {
	answer, err := engine.ContainerStats(ctx, name, client.ContainerStatsOptions{})
	if err != nil {
		return u, false
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil || s.CPUStats.CPUUsage.TotalUsage == 0 {
		return u, false
	}
	return proc.Use{CPU: time.Duration(s.CPUStats.CPUUsage.TotalUsage), Memory: inMemory(s.MemoryStats)}, true
}

// inMemory leaves out files that the kernel lets go of when it needs the room, as
// docker stats does: by the names of control groups of version 2, else of version 1.
func inMemory(s container.MemoryStats) int64 {
	files, ok := s.Stats["inactive_file"]
	if !ok {
		files = s.Stats["total_inactive_file"]
	}
	return int64(s.Usage - min(files, s.Usage))
}
