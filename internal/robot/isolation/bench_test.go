package isolation

import (
	"fmt"
	"syscall"
	"testing"
)

// BenchmarkStart measures the cost of a start besides a plain fork and exec.
func BenchmarkStart(b *testing.B) {
	c := Command{Path: "/bin/true", Args: []string{"true"}}
	b.Run("bare fork and exec", func(b *testing.B) {
		for b.Loop() {
			pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{})
			reap(b, pid, err)
		}
	})
	bench := func(name string, f Confinement) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				pid, pidfd, err := Start(c, f)
				reap(b, pid, err)
				_ = syscall.Close(pidfd)
			}
		})
	}
	bench("unconfined", Confinement{})
	if host().Tree == nil {
		return
	}
	group, err := host().Tree.Create("bench", Limits{})
	if err != nil {
		b.Fatal(err)
	}
	defer group.Remove()
	bench("cgroup", Confinement{Cgroup: group})
	bench("cgroup and filter", Confinement{Cgroup: group, Seccomp: true})
	if host().Allows(FactReadOnlySystem) {
		bench("all", Confinement{Cgroup: group, Seccomp: true, Mounts: &Mounts{ReadOnly: true, Tmp: b.TempDir()}})
	}
}

func BenchmarkProbe(b *testing.B) {
	for b.Loop() {
		if h := ProbeHost("bench-probe", b.TempDir()); h.Tree != nil {
			_ = h.Tree.Remove()
		}
	}
}

func reap(b *testing.B, pid int, err error) {
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	if err != nil {
		b.Fatal(fmt.Errorf("start: %w", err))
	}
}
