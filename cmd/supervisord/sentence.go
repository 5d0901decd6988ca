package main

import (
	"cmp"
	"fmt"
	"strings"

	"example.org/supervisord/supervisor"
	"example.org/supervisord/supervisor/program"
)

// sentence returns an update in one line, for a person who sees it for the first time.
func sentence(u supervisor.Update) string {
	// A newer supervisord may know more kinds.
	return u.Program + ": " + cmp.Or(aboutWorker(u), aboutGeneration(u), aboutProgram(u), string(u.Kind)+after(": ", u.Reason))
}

func aboutWorker(u supervisor.Update) string {
	it := fmt.Sprintf("worker %d of generation %d ", u.Worker, u.Generation)
	switch u.Kind {
	case program.WorkerSpawned:
		return it + fmt.Sprintf("starts (slot %d, PID %d)", u.Slot, u.PID)
	case program.WorkerReady:
		return it + "is ready" + took(u.Took)
	case program.WorkerLate:
		return it + "was not ready in time" + after(": ", u.Reason)
	case program.WorkerLeaving:
		return it + "is to be replaced" + after(": ", u.Reason)
	case program.WorkerStopping:
		text := it + "gets " + cmp.Or(u.Signal, "its signal to stop")
		if u.After > 0 {
			text += fmt.Sprintf(", and has %s to end", short(u.After))
		}
		return text
	case program.WorkerKilled:
		return it + "is killed" + after(": ", u.Reason)
	case program.WorkerStopped:
		return it + "has ended" + took(u.Took) + after(": ", u.Reason)
	case program.WorkerDied:
		if u.Step != "" {
			return it + "could not be started, at step " + u.Step + after(": ", u.Reason)
		}
		return it + "ended unexpectedly" + after(": ", u.Reason)
	}
	return ""
}

func aboutGeneration(u supervisor.Update) string {
	it := fmt.Sprintf("generation %d ", u.Generation)
	canary := fmt.Sprintf("the canary, generation %d, ", u.Generation)
	if u.Reload != nil && u.Reload.Share > 0 {
		canary += "gets " + program.Percentage(u.Reload.Share) + " of the new connections, "
	}
	switch u.Kind {
	case program.TrialBegan:
		return it + "starts" + because(u)
	case program.CanaryHeld:
		return canary + "is well and waits: promote or abort it"
	case program.CanaryWatched:
		return canary + fmt.Sprintf("is well, and is promoted in %s if it stays well", short(u.After))
	case program.CanaryPromoted:
		return canary + "is promoted" + because(u)
	case program.ShareChanged:
		return strings.TrimSuffix(canary, ", ") + " from now on" + because(u)
	case program.TrialFailed:
		return it + "failed" + failedAt(u)
	case program.GenerationServes:
		return it + "serves" + took(u.Took)
	case program.GenerationKept:
		return it + fmt.Sprintf("is kept for %s: `supervisord rollback %s` returns to it", short(u.After), u.Program)
	case program.GenerationGone:
		if u.Killed > 0 {
			return it + "has ended" + took(u.Took) + fmt.Sprintf("; %d of its workers had to be killed", u.Killed)
		}
		return it + "has ended" + took(u.Took)
	case program.RolledBack:
		return it + fmt.Sprintf("serves again: generation %d is rolled back", u.Serving) + because(u)
	case program.SlotRetry:
		return fmt.Sprintf("slot %d of generation %d gets a new worker ", u.Slot, u.Generation) + in(u)
	case program.StartRetry:
		return "nothing serves; the next attempt follows " + in(u)
	case program.ServesAgain:
		return it + "serves again" + took(u.Took)
	case program.NothingServes:
		return "nothing serves: " + it + "does not get ready again"
	case program.ReloadRetry:
		return "the reload is tried again " + in(u)
	}
	return aboutConnections(u, it)
}

// aboutConnections is about what becomes of the connections of a generation that gets no new ones.
func aboutConnections(u supervisor.Update, it string) string {
	switch {
	case u.Kind == program.GenerationQuiet:
		return it + "has no connections in hand any more" + took(u.Took)
	case u.Kind == program.GenerationBusy && u.Reload != nil && u.Reload.Left != nil:
		return it + "is told to stop with connections in hand" + took(u.Took) + ": " + inHand(*u.Reload.Left)
	case u.Kind == program.ConnectionsReset:
		return it + "has no worker left; " + reset(u.Reset)
	}
	return ""
}

func aboutProgram(u supervisor.Update) string {
	switch u.Kind {
	case program.ReloadQueued:
		return "a reload waits until the generation on trial is decided" + because(u)
	case program.ReloadHeld:
		return "a reload waits until the canary is promoted (abort drops it)" + because(u)
	case program.ReloadFull:
		return "a reload waits: as many old generations drain as max_draining allows" + because(u)
	case program.ReloadDropped:
		return "the reload is given up before it began" + because(u)
	case program.ReloadDamped:
		return fmt.Sprintf("watched files change with every generation, so reloads for them wait %s: %s", short(u.After), u.Reason)
	case program.CanaryRefused:
		return "the canary is refused, and nothing has changed" + after(": ", u.Reason)
	case program.Scaled:
		return u.Reason + asked(u)
	case program.SignalSent:
		if u.Generation != 0 {
			return fmt.Sprintf("%s is sent to the workers of generation %d%s", u.Signal, u.Generation, asked(u))
		}
		return u.Signal + " is sent to the workers" + asked(u)
	case program.Paused:
		return fmt.Sprintf("paused: new connections wait, for %s at most%s", short(u.After), asked(u))
	case program.Resumed:
		return "resumed" + took(u.Took) + ": new connections are accepted again" + asked(u)
	case program.PathRestored:
		return fmt.Sprintf("the path of listener %s is put back: %s", u.Listener, u.Reason)
	case program.PathTaken:
		return fmt.Sprintf("clients do not find the socket of listener %s: %s", u.Listener, u.Reason)
	case program.StopBegan:
		return "stops" + because(u)
	case program.StopEnded:
		if u.Stop != nil && u.Stop.Killed > 0 {
			return fmt.Sprintf("has stopped; %s had to be killed", count(u.Stop.Killed, "worker"))
		}
		return "has stopped"
	}
	return ""
}

// because says why something happens, and who asked for it.
func because(u supervisor.Update) string {
	switch {
	case u.Reason == "" || strings.Contains(u.AskedBy, u.Reason): // such as HUP, by signal HUP
		return asked(u)
	case u.AskedBy == "":
		return " (" + u.Reason + ")"
	case u.Reason == "requested":
		return " (requested by " + u.AskedBy + ")"
	}
	return " (" + u.Reason + "; by " + u.AskedBy + ")"
}

func asked(u supervisor.Update) string {
	if u.AskedBy == "" {
		return ""
	}
	return " (by " + u.AskedBy + ")"
}

func failedAt(u supervisor.Update) string {
	text := after(" at step ", u.Step)
	if u.Worker != 0 {
		text += fmt.Sprintf(", worker %d", u.Worker)
	}
	if text += after(": ", u.Reason); u.Step == "abort" {
		text += asked(u) // otherwise it is who asked for the generation
	}
	return text
}

func in(u supervisor.Update) string {
	if u.After <= 0 {
		return "at once"
	}
	return "in " + short(u.After)
}
