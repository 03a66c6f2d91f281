package placement

import "fmt"

// placeGang binds all of a gang's demands, in the order of their rank, or none
// of them: what was booked for the first ones is given back when a later one
// finds no robot.
func (c *cycle) placeGang(gang []*Demand) {
	if want := gang[0].Gang; len(gang) < want {
		c.refuseGang(gang, &Refusal{Gang: fmt.Sprintf("gang: only %d of %d replicas are there", len(gang), want)})
		return
	}
	var on []*bot
	for i, d := range gang {
		b, no := c.find(d)
		if no != nil {
			c.giveBack(gang[:i+1], on)
			why := fmt.Sprintf("gang: all %d replicas or none, and only %d found a robot; the next", len(gang), i)
			c.refuseGang(gang, &Refusal{Gang: why, because: no})
			return
		}
		c.book(d, b, 1)
		on = append(on, b)
	}
	for i, d := range gang {
		c.out.Bind = append(c.out.Bind, Binding{Demand: *d, Robot: on[i].Name})
	}
}

func (c *cycle) refuseGang(gang []*Demand, no *Refusal) {
	for _, d := range gang {
		c.out.Refused[d.Name()] = no
	}
}

// giveBack takes back what was booked. The last demand found nothing.
func (c *cycle) giveBack(demands []*Demand, on []*bot) {
	for i, b := range on {
		c.book(demands[i], b, -1)
	}
	for _, d := range demands {
		c.giveUp(d)
	}
}
