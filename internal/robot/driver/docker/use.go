package docker

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/proc"
)

const (
	// usesWait bounds the wait for the usage of all containers. Engines before version 28 measure
	// once a second, for all requests that are waiting then.
	usesWait = 5 * time.Second
	// usesAtOnce is the number of concurrent requests. With few of them, each batch would wait a
	// second of its own.
	usesAtOnce = 256
)

// containerName returns the name of an attempt's container. The engine rejects a second container
// of that name.
func containerName(a driver.Attempt) string {
	return "k8s4r-" + a.UID + "-" + strconv.Itoa(int(a.Number))
}

// MeasureUse sends one request to the engine for each container. Containers without a response in
// time are left out; the next call requests them again.
func (d *Driver) MeasureUse(attempts []driver.Attempt) map[driver.Attempt]proc.Use {
	engine, err := d.openEngine()
	if err != nil {
		return nil
	}
	defer closeEngine(engine)
	ctx, cancel := context.WithTimeout(context.Background(), usesWait)
	defer cancel()
	var (
		mu   sync.Mutex
		uses = make(map[driver.Attempt]proc.Use, len(attempts))
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

// useOf returns what a running container has used so far.
func useOf(ctx context.Context, engine *client.Client, name string) (u proc.Use, ok bool) {
	stats, err := engine.ContainerStats(ctx, name, client.ContainerStatsOptions{})
	if err != nil {
		return u, false
	}
	defer stats.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(stats.Body).Decode(&s); err != nil || s.CPUStats.CPUUsage.TotalUsage == 0 {
		return u, false
	}
	return proc.Use{CPU: time.Duration(s.CPUStats.CPUUsage.TotalUsage), Memory: inMemory(s.MemoryStats)}, true
}

// inMemory subtracts file pages that the kernel can reclaim, as docker stats does. The name of the
// counter is that of cgroup v2, or else of v1.
func inMemory(s container.MemoryStats) int64 {
	files, ok := s.Stats["inactive_file"]
	if !ok {
		files = s.Stats["total_inactive_file"]
	}
	return int64(s.Usage - min(files, s.Usage))
}
