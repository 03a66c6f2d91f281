package v1alpha1

import (
	"time"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// Duration is a length of time such as "90s", "1h30m" or "250ms".
//
// It is stored as text, so that an object with a value that cannot be parsed does not prevent a
// controller from reading all the others. The pattern limits the digits of each unit, so that a
// duration does not overflow.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^(0|([0-9]{1,6}([.][0-9]+)?h)?([0-9]{1,7}([.][0-9]+)?m)?([0-9]{1,9}([.][0-9]+)?s)?([0-9]{1,12}([.][0-9]+)?ms)?([0-9]{1,15}([.][0-9]+)?us)?([0-9]{1,18}ns)?)$`
type Duration string

// Value returns the length of time. If d is nil, negative or cannot be parsed, it is zero.
func (d *Duration) Value() time.Duration { return (*robotv1.Duration)(d).Value() }

// NewDuration returns d as a Duration.
func NewDuration(d time.Duration) *Duration { return (*Duration)(robotv1.NewDuration(d)) }
