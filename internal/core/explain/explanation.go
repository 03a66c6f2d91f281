package explain

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is what is known about one object. Its JSON is part of the console's API.
type Explanation struct {
	// State of the object, in the words of its kind. Never empty.
	State string `json:"state"`
	// IsWaiting is set if something must happen before it continues. False: it runs, or has
	// ended.
	IsWaiting bool `json:"waiting"`
	// Summary is the most important fact, as the end of a sentence. Empty: State says everything.
	Summary string `json:"summary,omitempty"`
	// Facts in the order in which they are displayed.
	Facts []Fact `json:"facts"`
	// Rejections are the data of the fact placement. Nil: it has none.
	Rejections *Rejections `json:"rejections,omitempty"`
	// Tasks of a job that wait, grouped by reason, the largest group first. More counts the tasks
	// of groups that are not listed.
	Tasks []Waiting `json:"tasks,omitempty"`
	More  int       `json:"more,omitempty"`
}

// Fact is one thing that is known.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// At is the time to which Text refers. Nil: none.
	At *metav1.MicroTime `json:"at,omitempty"`
}

// The names of facts that are of a kind of their own.
const (
	Placement = "placement"
	NextTry   = "next try"
)

// Waiting is a number of tasks that wait for the same reason.
type Waiting struct {
	Count int `json:"count"`
	// Tasks by name: the first few.
	Tasks   []string `json:"tasks"`
	Summary string   `json:"summary"`
	// Text is a further detail. Empty: none.
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
