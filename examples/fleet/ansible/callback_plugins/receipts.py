"""Prints what a roll did on every host: a table of the receipts, and why it stopped."""

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: receipts
type: aggregate
short_description: table of the receipts of a roll
description: Prints at the end what supervisord says of the reload on every host.
"""


def seconds(nanoseconds):
    return f"{nanoseconds / 1e9:.2f} s"


def figures(receipt):
    """Return how long a reload took, how long after it the old generation was gone, and what that had in hand at drain.timeout."""
    reload = receipt.get("reload") or {}
    if receipt["result"] != "deployed" or not reload:
        return "", "", ""
    took = seconds(reload["took_ns"])
    if not reload.get("ended"):
        return took, "?", "?"
    left = {k: n for k, n in (reload.get("left") or {}).items() if k != "idle"}
    drained = seconds(reload["drain_ns"]) if reload.get("replaced") else ""
    if reload.get("killed"):
        drained += f", {reload['killed']} killed"
    return took, drained, str(sum(left.values()))


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "receipts"

    def __init__(self):
        super().__init__()
        self.hosts = []  # of all plays, in their order
        self.rolls = False  # whether this play is the roll
        self.reached = set()
        self.broken = {}  # host: what it is, at which step, why

    def v2_playbook_on_play_start(self, play):
        found = play.get_variable_manager()._inventory.get_hosts(play.hosts, order=play.order)
        self.hosts += [h.name for h in found if h.name not in self.hosts]
        self.rolls = play.name == "Roll"

    def v2_runner_on_start(self, host, task):
        if self.rolls:
            self.reached.add(host.name)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        if not ignore_errors:
            self.note(result, "failed")

    def v2_runner_on_unreachable(self, result):
        self.note(result, "unreachable")

    def note(self, result, what):
        step = result._task.get_name().split(" : ")[-1]
        reason = result._result.get("stderr") or result._result.get("msg") or what
        self.broken[result._host.get_name()] = (what, step, reason.strip())

    def v2_playbook_on_stats(self, stats):
        receipts = {host: data["receipt"] for host, data in stats.custom.items() if "receipt" in data}
        if not receipts and not self.broken:
            return
        rows = [("HOST", "RESULT", "RELEASE", "TOOK", "DRAINED", "LEFT")]
        why = []
        for host in self.hosts:
            if host in receipts:
                receipt = receipts[host]
                rows.append((host, receipt["result"], receipt["release"], *figures(receipt)))
                if receipt["result"] != "deployed":
                    why.append((host, receipt["step"], receipt["why"]))
            elif host in self.broken:
                what, step, reason = self.broken[host]
                rows.append((host, what, "", "", "", ""))
                why.append((host, step, reason.splitlines()))
            else:
                rows.append((host, "unchanged" if host in self.reached else "untouched", "", "", "", ""))
        widths = [max(map(len, column)) for column in zip(*rows)]
        self._display.banner("RECEIPTS")
        for row in rows:
            self._display.display("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
        for host, step, lines in why:
            self._display.display(f"\n{host} failed at the step {step}: " + "\n  ".join(lines))
