// Package permutation lists the orders in which a test lets things happen.
package permutation

import "slices"

// ListAll returns all orders of the elements, each once if the elements differ.
func ListAll[T any](elements []T) (orders [][]T) {
	if len(elements) == 0 {
		return [][]T{nil}
	}
	for i, first := range elements {
		for _, rest := range ListAll(slices.Concat(elements[:i], elements[i+1:])) {
			orders = append(orders, append([]T{first}, rest...))
		}
	}
	return orders
}
