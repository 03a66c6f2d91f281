package wire

import (
	"encoding/json"
	"net/url"
)

// PrefetchOrder asks a robot to fetch what tasks will need. The robot fetches nothing that its policy does
// not allow for a task of the namespace.
type PrefetchOrder struct {
	// ID and Attempt identify the order. The robot ignores one that it knows.
	ID      string `json:"id"`
	Attempt int32  `json:"attempt"`
	// Namespace of the tasks.
	Namespace string             `json:"namespace"`
	Artifacts []PrefetchArtifact `json:"artifacts,omitempty"`
	// Images are pulled by the Docker engine of the robot.
	Images []string `json:"images,omitempty"`
	// BytesPerSecond bounds the transfer of the artifacts. If 0, there is no bound.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// PrefetchArtifact is the source of an artifact with a checksum.
type PrefetchArtifact struct {
	Source   string `json:"source"`
	Checksum string `json:"checksum"`
}

// The bounds of a PrefetchOrder: its artifacts and images together, its images, whose sizes are not known in
// advance, and its JSON in bytes.
const (
	MaxPrefetchItems  = 64
	MaxPrefetchImages = 8
	MaxPrefetchBytes  = 16 << 10
)

// IsWithinLimits reports whether a robot accepts the order.
func (o *PrefetchOrder) IsWithinLimits() bool {
	if o.ID == "" || len(o.ID) > maxUID || o.Attempt < 1 || o.BytesPerSecond < 0 {
		return false
	}
	if len(o.Images) > MaxPrefetchImages || len(o.Artifacts)+len(o.Images) > MaxPrefetchItems {
		return false
	}
	text, err := json.Marshal(o)
	return err == nil && len(text) <= MaxPrefetchBytes
}

// CanPrefetch reports whether a robot keeps a source until a task needs it: it has a checksum, and no user and
// no query in its address, which may be credentials.
func CanPrefetch(source, checksum string) bool {
	u, err := url.Parse(source)
	return err == nil && checksum != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.RawQuery == ""
}

// The states of a PrefetchReport.
const (
	PrefetchFetching = "Fetching"
	PrefetchDone     = "Done"
	PrefetchFailed   = "Failed"
)

// PrefetchReport is how far a robot is with a PrefetchOrder.
type PrefetchReport struct {
	ID      string `json:"id"`
	Attempt int32  `json:"attempt"`
	// State is one of the Prefetch constants.
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	// Bytes that were downloaded.
	Bytes int64 `json:"bytes,omitempty"`
}

const (
	// MaxPrefetchReports bounds the reports of a registration or heartbeat. The robot forgets older ones.
	MaxPrefetchReports = 8
	// MaxPrefetchMessage bounds PrefetchReport.Message, in bytes.
	MaxPrefetchMessage = 256
)

// PrefetchWithinLimits returns the reports within the limits of their parts, the last MaxPrefetchReports.
// Those without an ID, with an unknown state, and second ones about the same order are left out.
func PrefetchWithinLimits(all []PrefetchReport) []PrefetchReport {
	var out []PrefetchReport
	seen := map[string]bool{}
	for _, r := range all[max(0, len(all)-MaxPrefetchReports):] {
		isKnown := r.State == PrefetchFetching || r.State == PrefetchDone || r.State == PrefetchFailed
		if r.ID == "" || len(r.ID) > maxUID || seen[r.ID] || !isKnown {
			continue
		}
		seen[r.ID] = true
		r.Message, r.Bytes, r.Attempt = cleanText(r.Message, MaxPrefetchMessage), max(r.Bytes, 0), max(r.Attempt, 0)
		out = append(out, r)
	}
	return out
}
