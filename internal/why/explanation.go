package why

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Explanation is all that there is to say of one object. Its JSON is that of the console's API.
type Explanation struct {
	// State in the kind's own word. Never empty.
	State string `json:"state"`
	// Waits tells that something has to happen before it goes on. False: it works, or has ended.
	Waits bool `json:"waits"`
	// Gist is the first thing to know, the end of a sentence. Empty: the state says it all.
	Gist string `json:"gist,omitempty"`
	// Facts in the order in which they are read.
	Facts []Fact `json:"facts"`
	// Refused is what the fact placement says, robot by robot. Nil: it says something else.
	Refused *Refused `json:"refused,omitempty"`
	// Tasks of a job that wait, those that wait for the same together, the most first; More
	// are those for which there was no place.
	Tasks []Waiting `json:"tasks,omitempty"`
	More  int       `json:"more,omitempty"`
}

// Fact is one thing that is known.
type Fact struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// At is the time that Text tells of. Nil: it tells of none.
	At *metav1.MicroTime `json:"at,omitempty"`
}

// The names of facts that are of a kind of their own.
const (
	Placement = "placement"
	NextTry   = "next try"
)

// Waiting is a number of tasks that wait for the same.
type Waiting struct {
	Count int `json:"count"`
	// Tasks by name: the first few.
	Tasks []string `json:"tasks"`
	Gist  string   `json:"gist"`
	// Text is what else is known. Empty: nothing.
	Text    string   `json:"text,omitempty"`
	Refused *Refused `json:"refused,omitempty"`
}

// add leaves out what there is nothing to say about.
func (a *Explanation) add(name, text string) {
	if text != "" {
		a.Facts = append(a.Facts, Fact{Name: name, Text: text})
	}
}

func (a *Explanation) addTime(name, text string, at time.Time) {
	if text != "" {
		micro := metav1.NewMicroTime(at)
		a.Facts = append(a.Facts, Fact{Name: name, Text: text, At: &micro})
	}
}
