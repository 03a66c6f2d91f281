package proc

import (
	"os"
	"strconv"
	"time"
)

// Use is what processes have used.
type Use struct {
	// CPU is their time, with that of children of theirs that have ended.
	CPU time.Duration
	// Memory is the sum of their resident sets, in bytes: what two share counts
	// twice.
	Memory int64
}

// Processes are those of a moment.
type Processes struct {
	children map[int][]int
	fields   map[int][]string
}

// Now reads all processes once, for any number of questions.
func Now() Processes {
	p := Processes{children: map[int][]int{}, fields: map[int][]string{}}
	for _, pid := range All() {
		fields, err := stat(strconv.Itoa(pid))
		if err != nil {
			continue // it has ended
		}
		parent, _ := strconv.Atoi(fields[1])
		p.children[parent] = append(p.children[parent], pid)
		p.fields[pid] = fields
	}
	return p
}

// Below is what all that a process has started has used so far, without itself.
func (p Processes) Below(pid int) Use {
	fields, ok := p.fields[pid]
	if !ok {
		return Use{}
	}
	u := Use{CPU: ticks(fields, 13, 14)}
	for _, child := range p.children[pid] {
		below := p.Below(child)
		u.CPU += below.CPU + ticks(p.fields[child], 11, 12)
		u.Memory += below.Memory + resident(p.fields[child])
	}
	return u
}

// tick is the unit of time in /proc on every machine that Linux runs on today.
const tick = time.Second / 100

// ticks adds up times of proc(5), stat, by their place behind the name.
func ticks(fields []string, places ...int) (sum time.Duration) {
	for _, i := range places {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

func resident(fields []string) int64 {
	pages, _ := strconv.ParseInt(fields[21], 10, 64)
	return pages * int64(os.Getpagesize())
}
