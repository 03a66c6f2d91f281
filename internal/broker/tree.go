package broker

import "strings"

// maxLevels bounds the levels of a topic or a filter.
const maxLevels = 128

// tree finds the sessions whose filters match a topic. The zero value is empty.
type tree struct {
	children map[string]*tree
	subs     map[*session]subscription
}

// subscription is how a session wants the messages of one filter.
type subscription struct {
	qos               byte
	noLocal           bool // not those that it published itself
	retainAsPublished bool
}

// add returns whether the session had no such subscription before.
func (t *tree) add(filter string, s *session, sub subscription) (fresh bool) {
	n := t
	for level := range strings.SplitSeq(filter, "/") {
		next := n.children[level]
		if next == nil {
			next = &tree{}
			if n.children == nil {
				n.children = map[string]*tree{}
			}
			n.children[level] = next
		}
		n = next
	}
	if n.subs == nil {
		n.subs = map[*session]subscription{}
	}
	_, had := n.subs[s]
	n.subs[s] = sub
	return !had
}

// remove takes a subscription out, and every level that it leaves empty.
func (t *tree) remove(filter string, s *session) {
	level, rest, more := strings.Cut(filter, "/")
	child := t.children[level]
	if child == nil {
		return
	}
	if more {
		child.remove(rest, s)
	} else {
		delete(child.subs, s)
	}
	if len(child.subs) == 0 && len(child.children) == 0 {
		delete(t.children, level)
	}
}

// match returns each session with a filter for the topic once, with the most
// that its filters ask for.
func (t *tree) match(topic string) map[*session]subscription {
	found := map[*session]subscription{}
	// What a broker says of itself is for those who name it.
	t.walk(topic, !strings.HasPrefix(topic, "$"), func(s *session, sub subscription) {
		had, ok := found[s]
		if ok {
			sub.qos = max(sub.qos, had.qos)
			sub.noLocal = sub.noLocal && had.noLocal
			sub.retainAsPublished = sub.retainAsPublished || had.retainAsPublished
		}
		found[s] = sub
	})
	return found
}

func (t *tree) walk(rest string, wild bool, visit func(*session, subscription)) {
	level, tail, more := strings.Cut(rest, "/")
	if wild {
		t.children["#"].visit(visit)
	}
	for _, key := range [...]string{level, "+"} {
		child := t.children[key]
		switch {
		case child == nil || key == "+" && !wild:
		case more:
			child.walk(tail, true, visit)
		default:
			child.visit(visit)
			child.children["#"].visit(visit) // a/# also means a
		}
	}
}

func (t *tree) visit(visit func(*session, subscription)) {
	if t == nil {
		return
	}
	for s, sub := range t.subs {
		visit(s, sub)
	}
}

// matches tells whether one filter matches one topic.
func matches(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && (filter[0] == '+' || filter[0] == '#') {
		return false
	}
	for {
		want, filterRest, moreFilter := strings.Cut(filter, "/")
		got, topicRest, moreTopic := strings.Cut(topic, "/")
		switch {
		case want == "#":
			return true
		case want != "+" && want != got:
			return false
		case !moreTopic:
			return !moreFilter || filterRest == "#"
		case !moreFilter:
			return false
		}
		filter, topic = filterRest, topicRest
	}
}

// validTopic tells whether a message may be published to this topic.
func validTopic(topic string) bool {
	return topic != "" && !strings.ContainsAny(topic, "+#\x00") && strings.Count(topic, "/") < maxLevels
}

// validFilter tells whether a client may subscribe to this filter.
func validFilter(filter string) bool {
	if filter == "" || strings.Contains(filter, "\x00") || strings.Count(filter, "/") >= maxLevels {
		return false
	}
	for rest, more := filter, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		if level == "#" && more || len(level) > 1 && strings.ContainsAny(level, "+#") {
			return false
		}
	}
	return true
}
