package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is what is known about one object. Its JSON is part of the console's API.
type Explanation struct {
	// State of the object, as in its status. Never empty.
	State string `json:"state"`
	// IsWaiting is set if the object waits for something before it can continue. It is false for
	// objects whose process runs or that have ended.
	IsWaiting bool `json:"waiting"`
	// Summary is the most important fact, as the end of a sentence. It is empty if State contains
	// everything.
	Summary string `json:"summary,omitempty"`
	// Facts, in display order.
	Facts []Fact `json:"facts"`
	// Rejections are the data of the fact placement. Nil if there are none.
	Rejections *Rejections `json:"rejections,omitempty"`
	// Tasks of a job that wait, grouped by reason, the largest group first. More counts the tasks
	// of groups that are not listed.
	Tasks []Waiting `json:"tasks,omitempty"`
	More  int       `json:"more,omitempty"`
}

// Fact is one named piece of information about an object.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// At is the time to which Text refers, or nil.
	At *metav1.MicroTime `json:"at,omitempty"`
}

// Names of facts that have data beside their text.
const (
	Placement   = "placement"
	NextAttempt = "next attempt"
	NextRun     = "next run"
)

// Waiting describes tasks that wait for the same reason.
type Waiting struct {
	Count int `json:"count"`
	// Tasks are the names of the first few tasks.
	Tasks   []string `json:"tasks"`
	Summary string   `json:"summary"`
	// Text is a further detail. It may be empty.
	Text       string      `json:"text,omitempty"`
	Rejections *Rejections `json:"rejections,omitempty"`
}

// addFact omits empty facts.
func (a *Explanation) addFact(name, text string) {
	if text != "" {
		a.Facts = append(a.Facts, Fact{Name: name, Text: text})
	}
}

func (a *Explanation) addTimeFact(name, text string, at time.Time) {
	if text != "" {
		micro := metav1.NewMicroTime(at)
		a.Facts = append(a.Facts, Fact{Name: name, Text: text, At: &micro})
	}
}
