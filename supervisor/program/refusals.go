package program

// RefusesRollback says why the program cannot be rolled back now, and what to do instead; "": it can.
func (p *Program) RefusesRollback() string {
	return "no generation is kept: reload with the old version"
}

// RefusesShare says why the trial cannot be given this share of the new connections; "": it can.
func (p *Program) RefusesShare(share int) string {
	if t := p.Trial; t == nil || t.Share == 0 {
		return "no canary has a share of the new connections: promote it without --canary"
	}
	return ""
}
