package servers

import (
	"path"
	"slices"
	"strings"
)

// jobs are programs that take work from a queue or a clock, and listen nowhere: their name, and a word that must
// follow, "" for none.
var jobs = [][2]string{
	{"celery", ""}, {"sidekiq", ""}, {"sidekiqswarm", ""}, {"rq", ""}, {"rqworker", ""}, {"rqscheduler", ""},
	{"dramatiq", ""}, {"huey_consumer", ""},
	{"huey_consumer.py", ""}, {"arq", ""}, {"taskiq", ""}, {"procrastinate", ""}, {"resque", ""}, {"resque-pool", ""},
	{"good_job", ""},
	{"shoryuken", ""}, {"solid_queue", ""}, {"que", ""}, {"sneakers", ""}, {"faktory_worker", ""}, {"delayed_job", ""},
	{"jobs", "start"},
	{"rake", "jobs:work"}, {"rake", "resque:work"}, {"rake", "resque:scheduler"}, {"rake", "solid_queue:start"},
	{"rake", "sneakers:run"},
	{"rails", "jobs:work"}, {"rails", "resque:work"}, {"rails", "solid_queue:start"}, {"rails", "runner"},
	{"artisan", "queue:work"}, {"artisan", "queue:listen"}, {"artisan", "horizon"}, {"artisan", "schedule:work"},
	{"artisan", "pulse:work"},
	{"console", "messenger:consume"}, {"console", "enqueue:consume"},
	{"sleep", ""}, {"tail", ""}, {"cron", ""}, {"crond", ""}, {"supercronic", ""},
}

// djangoServers are the commands of manage.py that listen; every other is a job.
var djangoServers = []string{"runserver", "runserver_plus", "runsslserver", "testserver", "daphne"}

// Schedules reports whether a command starts jobs by a clock, so that two of it at the same time would start each job
// twice.
func Schedules(argv []string) bool {
	words := strings.Fields("cron crond supercronic beat -B --beat rqscheduler resque:scheduler schedule:work")
	return Works(argv) && slices.ContainsFunc(argv, func(word string) bool {
		return slices.Contains(words,
			path.Base(word))
	})
}

// Works reports whether a command starts a program that takes work from a queue, so that it has no listener. Wrappers
// and interpreters do not hide it.
func Works(argv []string) bool {
	if script := scriptOf(argv); script != nil {
		return Works(script)
	}
	for i, word := range argv {
		if strings.HasPrefix(word, "-") && word != "-m" {
			continue
		}
		after := ""
		if i+1 < len(argv) {
			after = argv[i+1]
		}
		if path.Base(word) == "manage.py" && after != "" && !strings.HasPrefix(after, "-") &&
			!slices.Contains(djangoServers, after) {
			return true
		}
		for _, job := range jobs {
			if job[0] == path.Base(word) && (job[1] == "" && i <= unwrap(argv) || job[1] != "" && job[1] == after) {
				return true
			}
		}
	}
	return false
}
