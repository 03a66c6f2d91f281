package broker

// RoleAnonymous may do everything, as at a broker without an authority. It is for
// an authority that was told to let in whoever comes.
const RoleAnonymous = roleAny
