// Command soak runs supervisord for hours under a real systemd, with three programs under load, and breaks whatever it
// can meanwhile: reloads, versions that fail, canaries, rollbacks, deaths and upgrades of supervisord, dead and stopped
// workers, a full disk, no descriptors, hostile clients, a clock that jumps. It draws every event from a seed.
// Throughout it checks that
//
//  1. no request is lost but by a worker that soak killed, or that loses it by its own doing (package traffic counts);
//  2. exactly one generation of each program serves;
//  3. every reload has exactly one outcome, and everybody who asked is told that one, also over deaths and upgrades;
//  4. a version that fails never serves, and one that does not fail always does, unless soak disturbed it;
//  5. supervisord always answers again, and is the same instance with the same programs;
//  6. when it is quiet, supervisord has the descriptors, processes, files and memory that it had at first.
//
// The first promise that is broken ends the soak with status 1, the seed, the last events, and the journal.
//
// soak has three roles: outside it builds everything and boots the lab; inside the lab it runs the soak; as a hostile
// client it attacks the control socket as an ordinary user.
package main
