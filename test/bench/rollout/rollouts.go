package main

import (
	"time"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/rollout"
)

// goodVersion is what all robots run in the end.
const goodVersion = "v2"

// rollOutGood rolls a good revision out, and measures its rate and its costs.
func (s *bench) rollOutGood() {
	s.changeVersion(goodVersion)
	had, cpu, began := s.countWrites(), s.manager.CPU(), time.Now()
	s.startRollout("good")
	awaitProfile := s.startProfile()
	r := s.awaitEnd("good", v1alpha1.RolloutComplete)
	s.result.GoodRolloutS = time.Since(began).Seconds()
	used := s.manager.CPU() - cpu
	s.good = dropContact(s.countWrites().Since(had))
	s.fleet.awaitVersion(s.fleet.steady, goodVersion, waitTimeout)
	changed := float64(len(s.fleet.robotsThatStarted(goodVersion)))
	s.result.WritesPerRobot, s.result.ManagerCPUMsPerRobot = float64(s.good.Sum())/changed, float64(used.Milliseconds())/changed
	s.result.RobotsPerS = s.rateOfLastWave(r)
	s.result.WavesStuck += s.countStuck(r, goodVersion)
	awaitProfile()
}

// rateOfLastWave returns how many robots with steady contact started the revision a second, from the
// start of the last wave to the last of these starts. Zero if the wave has not started.
func (s *bench) rateOfLastWave(r *v1alpha1.Rollout) float64 {
	last := len(r.Spec.Waves) - 1
	if len(r.Status.Waves) <= last || r.Status.Waves[last].StartedAt == nil {
		return 0
	}
	starts, _ := s.startsInWave(r, last, goodVersion)
	if len(starts) == 0 {
		return 0
	}
	return float64(len(starts)) / latest(starts).Sub(r.Status.Waves[last].StartedAt.Time).Seconds()
}

// startsInWave returns when the robots of a wave with steady contact started a version last, and how many
// of them have not.
func (s *bench) startsInWave(r *v1alpha1.Rollout, wave int, version string) (starts []time.Time, missing int) {
	for _, of := range s.fleet.steady {
		if rollout.FindWave(r, rollout.Unit{Name: of.id}) != wave {
			continue
		}
		var at time.Time
		for _, one := range s.fleet.startsOf(of) {
			if one.version == version {
				at = one.at
			}
		}
		if at.IsZero() {
			missing++
		} else {
			starts = append(starts, at)
		}
	}
	return starts, missing
}

func latest(all []time.Time) (last time.Time) {
	for _, at := range all {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// rollOutBad rolls a revision out whose task fails, and measures how far it gets and how long the way
// back takes.
func (s *bench) rollOutBad() {
	s.changeVersion(badVersion)
	s.startRollout("bad")
	r := s.awaitEnd("bad", v1alpha1.RolloutReverted)
	s.fleet.awaitVersion(s.fleet.steady, goodVersion, waitTimeout)
	for _, of := range s.fleet.robots {
		if rollout.FindWave(r, rollout.Unit{Name: of.id}) == 0 {
			s.result.FirstWave++
		}
	}
	if r.Status.CompletedAt == nil {
		s.result.WavesStuck += s.countStuck(r, badVersion)
	}
	var first, last time.Time
	for _, of := range s.fleet.steady {
		bad, back := findRevert(s.fleet.startsOf(of))
		if !bad.IsZero() && (first.IsZero() || bad.Before(first)) {
			first = bad
		}
		last = latest([]time.Time{last, back})
	}
	if first.IsZero() {
		s.Error("no robot with steady contact has started the bad revision")
		return
	}
	s.result.RevertedS = last.Sub(first).Seconds()
}

// findRevert returns the first start of the bad version, and the next one of another version. Each may be
// zero.
func findRevert(starts []start) (bad, back time.Time) {
	for _, s := range starts {
		switch {
		case s.version == badVersion && bad.IsZero():
			bad = s.at
		case s.version == badVersion:
			back = time.Time{}
		case !bad.IsZero() && back.IsZero():
			back = s.at
		}
	}
	return bad, back
}

// returnRobots brings robots back into contact, and measures how long they take to follow.
func (s *bench) returnRobots(robots []*robot) {
	began := time.Now()
	s.fleet.regainContact(robots)
	s.fleet.awaitVersion(robots, goodVersion, waitTimeout)
	s.result.FollowedS = max(s.result.FollowedS, time.Since(began).Seconds())
}

// endFlapping waits until the flapping robots run the good revision, too.
func (s *bench) endFlapping() {
	s.stopFlapping()
	s.fleet.awaitVersion(s.fleet.robots, goodVersion, waitTimeout)
	s.awaitRunning(len(s.fleet.robots))
}

// stuckAfter is how long a wave may go on after its robots with steady contact have started its revision:
// it waits for those out of contact, and for flapping ones until it has seen them flap.
const stuckAfter = healthyFor + maxWaiting + time.Minute

// countStuck returns how many waves of a Rollout went on although all their robots with steady contact
// had finished.
func (s *bench) countStuck(r *v1alpha1.Rollout, version string) (stuck int) {
	for i := range r.Status.Waves {
		if starts, missing := s.startsInWave(r, i, version); missing == 0 && isStuck(&r.Status.Waves[i], starts, time.Now()) {
			s.Errorf("wave %s of Rollout %s is stuck: %+v", r.Status.Waves[i].Name, r.Name, r.Status.Waves[i])
			stuck++
		}
	}
	return stuck
}

// isStuck reports whether a wave went on for too long after all its robots with steady contact had started
// its revision.
func isStuck(w *v1alpha1.RolloutWaveStatus, starts []time.Time, now time.Time) bool {
	finished, ended := latest(starts), now
	if w.StartedAt != nil && w.StartedAt.After(finished) {
		finished = w.StartedAt.Time
	}
	if w.FinishedAt != nil {
		ended = w.FinishedAt.Time
	}
	return ended.Sub(finished) > stuckAfter
}
