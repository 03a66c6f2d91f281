package actions

import (
	"slices"
	"strings"
	"time"
)

// AnnotationRecords is the annotation in which admission records who changed an object: one line for each
// request, the last one at the end. Users cannot write it (config/admission/actions.yaml).
const AnnotationRecords = "k8s4r.io/actions"

// maxRecords bounds the lines of AnnotationRecords. The policy has the same limit.
const maxRecords = 10

// Record is who did what, in a line "TIME ID VERB CHANGES USER".
type Record struct {
	At time.Time
	// ID is the UID of the admission request.
	ID string
	// Verb is create or update.
	Verb string
	// Changes are those of ListChanges. Empty: none.
	Changes []string
	User    string
}

// noChanges stands for an empty list.
const noChanges = "-"

// formatRecord returns the line. A user is last, because only its name may have spaces.
func (r Record) formatRecord() string {
	changes := strings.Join(strings.Fields(strings.Join(r.Changes, ",")), "_")
	if changes == "" {
		changes = noChanges
	}
	return strings.Join([]string{r.At.UTC().Format(time.RFC3339Nano), r.ID, r.Verb, shorten(changes), strings.ReplaceAll(r.User, "\n", " ")}, " ")
}

func shorten(text string) string {
	if len(text) <= maxDescription {
		return text
	}
	return strings.ToValidUTF8(text[:maxDescription], "")
}

// AppendRecord returns the annotation with one more record. It keeps the last maxRecords.
func AppendRecord(annotation string, r Record) string {
	var lines []string
	if annotation != "" {
		lines = strings.Split(annotation, "\n")
	}
	lines = append(lines, r.formatRecord())
	return strings.Join(lines[max(0, len(lines)-maxRecords):], "\n")
}

// ParseRecords returns the records in the annotation. It leaves out lines that are none.
func ParseRecords(annotation string) (all []Record) {
	for line := range strings.SplitSeq(annotation, "\n") {
		parts := strings.SplitN(line, " ", 5)
		if len(parts) != 5 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, parts[0])
		if err != nil || parts[1] == "" || !slices.Contains([]string{"create", "update"}, parts[2]) {
			continue
		}
		r := Record{At: at, ID: parts[1], Verb: parts[2], User: parts[4]}
		if parts[3] != noChanges {
			r.Changes = strings.Split(parts[3], ",")
		}
		all = append(all, r)
	}
	return all
}
