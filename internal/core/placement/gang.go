package placement

// placeGang binds all demands of a gang in the order of their rank, or none: if one gets no robot,
// the room that was reserved for the previous ones is released.
func (c *cycle) placeGang(gang []*Demand) {
	if want := gang[0].Gang; len(gang) < want {
		c.rejectGang(gang, &Diagnosis{Gang: &GangShortage{Replicas: want, Created: len(gang)}})
		return
	}
	var on []*cycleRobot
	for i, d := range gang {
		b, no := c.findRobot(d)
		if no != nil {
			c.releaseGang(gang[:i+1], on)
			c.rejectGang(gang, &Diagnosis{Gang: &GangShortage{Replicas: len(gang), Created: len(gang), Placed: i}, cause: no})
			return
		}
		c.reserveRoom(d, b, 1)
		on = append(on, b)
	}
	for i, d := range gang {
		c.out.Bind = append(c.out.Bind, Binding{Demand: *d, Robot: on[i].Name})
	}
}

func (c *cycle) rejectGang(gang []*Demand, no *Diagnosis) {
	c.gangDiagnoses = append(c.gangDiagnoses, no)
	for _, d := range gang {
		c.out.Rejected[d.Name()] = no
	}
}

// releaseGang releases the reserved room. The last demand has no reservation.
func (c *cycle) releaseGang(demands []*Demand, on []*cycleRobot) {
	for i, b := range on {
		c.reserveRoom(demands[i], b, -1)
	}
	for _, d := range demands {
		c.dropClass(d)
	}
}
