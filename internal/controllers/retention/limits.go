package retention

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Annotations of a namespace that replace the limits of the manager's flags there.
const (
	// AnnotationAge is a duration such as 48h; 0 switches the retention off.
	AnnotationAge = "robot.k8s4r.io/finished-retention"
	// AnnotationCount is a number of objects; 0 is no limit.
	AnnotationCount = "robot.k8s4r.io/finished-max-objects"
)

// The defaults of `k8s4r up`. In a cluster only DefaultCount is one.
const (
	DefaultAge   = 24 * time.Hour
	DefaultCount = 1000
)

// The maxima of the limits.
const (
	maxAge   = 10 * 365 * 24 * time.Hour
	maxCount = 1_000_000
)

// Limits bound the finished objects of one namespace.
type Limits struct {
	// Age is how long after its end an object is deleted. If 0, nothing is deleted, whatever
	// Count is.
	Age time.Duration
	// Count is the number of finished objects above which those that ended first are deleted
	// before their age. If 0, there is no such limit.
	Count int
}

// Validate returns an error if a limit is out of range.
func (l Limits) Validate() error {
	return errors.Join(validateAge("--finished-retention", l.Age), validateCount("--finished-max-objects", l.Count))
}

func validateAge(field string, age time.Duration) error {
	if age < 0 || age > maxAge {
		return fmt.Errorf("%s=%s: must be from 0 (off) to %s", field, age, maxAge)
	}
	return nil
}

func validateCount(field string, count int) error {
	if count < 0 || count > maxCount {
		return fmt.Errorf("%s=%d: must be from 0 (no limit) to %d", field, count, maxCount)
	}
	return nil
}

// overrideBy returns the limits of a namespace with these annotations. If one is invalid, the limits
// are off: a mistake must delete nothing.
func (l Limits) overrideBy(annotations map[string]string) (Limits, error) {
	var errs []error
	if text, ok := annotations[AnnotationAge]; ok {
		age, err := time.ParseDuration(text)
		if err != nil {
			err = fmt.Errorf("%s=%q: must be a duration such as 48h, or 0", AnnotationAge, text)
		} else {
			err = validateAge(AnnotationAge, age)
		}
		l.Age, errs = age, append(errs, err)
	}
	if text, ok := annotations[AnnotationCount]; ok {
		count, err := strconv.Atoi(text)
		if err != nil {
			err = fmt.Errorf("%s=%q: must be a number of objects, or 0", AnnotationCount, text)
		} else {
			err = validateCount(AnnotationCount, count)
		}
		l.Count, errs = count, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Limits{}, err
	}
	return l, nil
}
