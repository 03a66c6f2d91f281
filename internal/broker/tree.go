package broker

import "strings"

// maxLevels bounds the levels of a topic or a filter.
const maxLevels = 128

// filterTree finds the sessions whose filters match a topic. The zero value is empty.
type filterTree struct {
	children map[string]*filterTree
	subs     map[*session]subscription
}

// subscription has the options of one filter of a session.
type subscription struct {
	qos               byte
	noLocal           bool // not those that it published itself
	retainAsPublished bool
}

// addFilter reports whether the session had no such subscription before.
func (t *filterTree) addFilter(filter string, s *session, sub subscription) (fresh bool) {
	n := t
	for level := range strings.SplitSeq(filter, "/") {
		next := n.children[level]
		if next == nil {
			next = &filterTree{}
			if n.children == nil {
				n.children = map[string]*filterTree{}
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

// removeFilter removes a subscription and the levels that become empty.
func (t *filterTree) removeFilter(filter string, s *session) {
	level, rest, more := strings.Cut(filter, "/")
	child := t.children[level]
	if child == nil {
		return
	}
	if more {
		child.removeFilter(rest, s)
	} else {
		delete(child.subs, s)
	}
	if len(child.subs) == 0 && len(child.children) == 0 {
		delete(t.children, level)
	}
}

// matchTopic returns each session with a matching filter once, with the highest options
// of its filters.
func (t *filterTree) matchTopic(topic string) map[*session]subscription {
	found := map[*session]subscription{}
	// Wildcards do not match topics of the broker itself (MQTT 5, 4.7.2).
	t.walkLevels(topic, !strings.HasPrefix(topic, "$"), func(s *session, sub subscription) {
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

func (t *filterTree) walkLevels(rest string, wild bool, visit func(*session, subscription)) {
	level, tail, more := strings.Cut(rest, "/")
	if wild {
		t.children["#"].visitSubscriptions(visit)
	}
	for _, key := range [...]string{level, "+"} {
		child := t.children[key]
		switch {
		case child == nil || key == "+" && !wild:
		case more:
			child.walkLevels(tail, true, visit)
		default:
			child.visitSubscriptions(visit)
			child.children["#"].visitSubscriptions(visit) // a/# also means a
		}
	}
}

func (t *filterTree) visitSubscriptions(visit func(*session, subscription)) {
	if t == nil {
		return
	}
	for s, sub := range t.subs {
		visit(s, sub)
	}
}

// matchesFilter reports whether a filter matches a topic.
func matchesFilter(filter, topic string) bool {
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

// isValidTopic reports whether a message may be published to a topic.
func isValidTopic(topic string) bool {
	return topic != "" && !strings.ContainsAny(topic, "+#\x00") && strings.Count(topic, "/") < maxLevels
}

// isValidFilter reports whether a client may subscribe to a filter.
func isValidFilter(filter string) bool {
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
