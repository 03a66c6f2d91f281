package program_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/driver"
	"k8s4r.io/k8s4r/internal/robot/shim"
)

// BenchmarkStart runs /bin/true in a shim, and without one. cpu-us is the CPU time of shim and task.
func BenchmarkStart(b *testing.B) {
	programs := map[string]string{"shim's program": build(b), "agent's program": ""}
	for name, path := range programs {
		b.Run(name, func(b *testing.B) {
			dir, i := b.TempDir(), 0
			measureChildren(b, func() (pid int) {
				i++
				attempt := filepath.Join(dir, strconv.Itoa(i))
				spec := shim.Spec{
					Program: path, Dir: filepath.Join(attempt, "shim"), LogDir: filepath.Join(attempt, "logs"), WorkDir: dir, Driver: "raw_exec",
					Config: wire.TaskConfig{Exec: &wire.ExecConfig{Command: "/bin/true"}}, Env: map[string]string{"PATH": driver.DefaultPath},
				}
				pid, pidfd, err := shim.Spawn(spec, "task", nil)
				if err != nil {
					b.Fatal(err)
				}
				_ = unix.Close(pidfd)
				return pid
			})
		})
	}
	b.Run("no shim", func(b *testing.B) {
		measureChildren(b, func() (pid int) {
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
			if err != nil {
				b.Fatal(err)
			}
			return p.Pid
		})
	})
}

// measureChildren starts processes one after the other.
func measureChildren(b *testing.B, start func() (pid int)) {
	before := childrenTime()
	for b.Loop() {
		if _, err := unix.Wait4(start(), nil, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((childrenTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
}

func childrenTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
