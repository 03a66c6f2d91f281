package program

// Parts of this package for its tests, which cannot be in it: the suite of drivers imports it.
var (
	ForgetPages = forgetPages
	Carried     = len(embedded) > 0
)

// NewOpener returns a function that opens this program as the one that the agent carries.
func NewOpener(compressed string) func() (path string, err error) {
	return (&carrier{compressed: compressed}).open
}
