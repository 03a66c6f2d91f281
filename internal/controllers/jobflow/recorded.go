package jobflow

import (
	"k8s.io/apimachinery/pkg/types"

	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
)

// recordedJob is a Job that the status records. Its UID is empty if the definition of
// JobFlows has no field for it.
type recordedJob struct {
	name string
	uid  types.UID
}

// key returns the key of the Job in Input.MissingSince. A name is never equal to a UID of
// another Job of the flow, because it begins with the name of the flow.
func (r recordedJob) key() types.UID {
	if r.uid != "" {
		return r.uid
	}
	return toUID(r.name)
}

// unseenJobs returns the Jobs whose end is not recorded, that no event has reported as
// deleted, and that neither the cache nor the API server has shown.
func unseenJobs(in *Input) []recordedJob {
	seen := make(map[string]bool, len(in.Jobs))
	for _, all := range []map[types.UID]*Job{in.Jobs, in.DeletedJobs} {
		for id, j := range all {
			seen[j.Name], seen[string(id)] = true, true
		}
	}
	var out []recordedJob
	for _, r := range recordedJobs(in.Flow) {
		_, known := in.MissingSince[r.key()]
		if !known && !seen[string(r.key())] && !in.Creating[r.name] {
			out = append(out, r)
		}
	}
	return out
}

// recordedJobs returns the Jobs of the steps whose end is not recorded.
func recordedJobs(f *flowv1.JobFlow) []recordedJob {
	var out []recordedJob
	entries := make(map[string]*flowv1.JobStatus, len(f.Status.JobStatusList))
	for i := range f.Status.JobStatusList {
		r := &f.Status.JobStatusList[i]
		entries[r.Name] = r
		if r.UID == "" && r.State != "" && !flowv1.HasEnded(r.State) {
			out = append(out, recordedJob{name: r.Name})
		}
	}
	for i := range f.Status.Steps {
		s := &f.Status.Steps[i]
		name := JobName(f.Name, s.Name)
		r := entries[name]
		if s.JobUID != "" && (r == nil || !flowv1.HasEnded(r.State) || !r.MatchesUID(s.JobUID)) {
			out = append(out, recordedJob{name, toUID(s.JobUID)})
		}
	}
	return out
}
