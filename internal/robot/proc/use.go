package proc

import (
	"os"
	"strconv"
	"time"
)

// Use is what processes have used.
type Use struct {
	// CPU is their CPU time, including that of their children that have exited.
	CPU time.Duration
	// Memory is the sum of their resident sets, in bytes. Shared memory counts for each process.
	Memory int64
}

// Processes is a snapshot of all processes.
type Processes struct {
	children map[int][]int
	fields   map[int][]string
}

// ReadProcesses takes a snapshot of all processes.
func ReadProcesses() Processes {
	p := Processes{children: map[int][]int{}, fields: map[int][]string{}}
	for _, pid := range ListAll() {
		fields, err := readStat(strconv.Itoa(pid))
		if err != nil {
			continue // it has exited
		}
		parent, _ := strconv.Atoi(fields[1])
		p.children[parent] = append(p.children[parent], pid)
		p.fields[pid] = fields
	}
	return p
}

// UseBelow returns what the descendants of a process have used so far, without the process itself.
func (p Processes) UseBelow(pid int) Use {
	fields, ok := p.fields[pid]
	if !ok {
		return Use{}
	}
	u := Use{CPU: sumTicks(fields, 13, 14)}
	for _, child := range p.children[pid] {
		below := p.UseBelow(child)
		u.CPU += below.CPU + sumTicks(p.fields[child], 11, 12)
		u.Memory += below.Memory + residentBytes(p.fields[child])
	}
	return u
}

// tick is the unit of time in /proc. It is the same on all current machines.
const tick = time.Second / 100

// sumTicks adds up times of proc(5), stat, by their index after the name.
func sumTicks(fields []string, places ...int) (sum time.Duration) {
	for _, i := range places {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

func residentBytes(fields []string) int64 {
	pages, _ := strconv.ParseInt(fields[21], 10, 64)
	return pages * int64(os.Getpagesize())
}
