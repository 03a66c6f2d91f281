package runner

import (
	"path/filepath"

	"k8s4r.io/k8s4r/internal/robot/agent/artifactcache"
	"k8s4r.io/k8s4r/internal/robot/artifact"
)

// findCached returns the files of the cache that may have the content of the artifacts, by index. It lets
// the set-up keep the sources that it has to download, so that the cache has them next time.
func findCached(cache artifactCache, requests []artifact.Request) []string {
	if cache == nil {
		return nil
	}
	paths := make([]string, len(requests))
	for i := range requests {
		if content, ok := requests[i].Content(); ok {
			requests[i].Keep = true
			paths[i], _ = cache.Lookup(content)
		}
	}
	return paths
}

// collectArtifacts gives the sources that the set-up of the task has kept to the cache. It moves them out of
// the task's directory first, where they would count against the disk quota of the replica. An earlier agent
// has done so before the journal had the start: what is there since is the task's own.
func (r *Runner) collectArtifacts(attempt *attempt) {
	if r.artifacts == nil || attempt.isStartJournaled || attempt.hasArtifacts() {
		return
	}
	uid := attempt.task.Metadata.UID
	for _, request := range artifactRequests(attempt.task.Spec.Artifacts) {
		content, ok := request.Content()
		if !ok {
			continue
		}
		into := filepath.Join(r.dirs.attemptDir(uid, attempt.number), artifactcache.KeptName(content))
		taken, err := request.TakeKept(r.dirs.WorkDir(uid, attempt.number), into)
		if err != nil {
			r.log.Info("an artifact was not added to the cache", "task", attempt.task.Metadata.Name, "uid", uid, "reason", err)
		}
		if taken {
			r.artifacts.Collect(content, into)
		}
	}
}

// KeptArtifacts returns a pattern for the directories in which sources wait for the cache.
func (p StateDir) KeptArtifacts() string { return filepath.Join(string(p), tasksDir, "*", "*") }

// IsSettingUp reports whether a task is being started that may fetch something. Other goroutines may call it.
func (r *Runner) IsSettingUp() bool { return r.isSettingUp.Load() }

func (r *Runner) hasSetUp() bool {
	for _, attempt := range r.live {
		t := attempt.task.Spec
		if attempt.shim != nil && attempt.startedAt.IsZero() && (len(t.Artifacts) > 0 || t.Driver == driverDocker) {
			return true
		}
	}
	return false
}
