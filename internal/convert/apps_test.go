package convert

import (
	"strings"
	"testing"

	"example.org/supervisord/internal/convert/source"
)

// TestEveryKindSaysWhatToDoNext checks that the steps are there, and name the command that stops the old supervisor.
func TestEveryKindSaysWhatToDoNext(t *testing.T) {
	for name, stops := range map[string]string{
		"systemd/node": "systemctl disable --now node", "pm2/json": "pm2 stop json",
		"compose/shop": "docker compose stop web api", "supervisor/laravel": "disable --now supervisor",
		"procfile/usual": "stop foreman", "start_server/short": "stop start_server",
	} {
		s := goldenFiles(t)["testdata/"+name+".in"]
		s.Name = strings.TrimSuffix(s.Name, ".in")
		r, err := Convert(s, elsewhere("testdata"))
		if all := strings.Join(r.Next, "\n"); err != nil || !strings.Contains(all, stops) ||
			!strings.Contains(all, "supervisord check -c FILE") || !strings.Contains(all, "prove") {
			t.Errorf("%s: %v\n%s", name, err, all)
		}
	}
}

func TestNoValueOfADocumentedKeyOfPM2OrComposeIsDropped(t *testing.T) {
	for _, line := range []string{
		"name: x", "args: a", "interpreter: node18", "node_args: --a", "cwd: /x", "instances: 2", "exec_mode: cluster",
		"watch: true", "ignore_watch: [a]", "max_memory_restart: 1G",
		"env: {A: 1}", "env_x: {A: 1}", "out_file: /a", "error_file: /b", "log_file: /c", "merge_logs: true",
		"log_date_format: x", "pid_file: /p", "kill_timeout: 3", "listen_timeout: 5000",
		"wait_ready: true", "autorestart: false", "min_uptime: 5s", "max_restarts: 3", "restart_delay: 5",
		"exp_backoff_restart_delay: 50", "cron_restart: '* * * * *'", "uid: nobody",
		"gid: nogroup", "source_map_support: true", "vizion: false", "treekill: false", "port: 80", "instance_var: X",
		"increment_var: PORT", "shutdown_with_message: true",
		"namespace: x", "time: true", "stop_exit_codes: [0]", "filter_env: [A]", "force: true", "post_update: [a]",
		"anything: x",
	} {
		shows(t, source.PM2, "apps:\n- script: ./x\n", "  "+line+"\n", line == "name: x")
	}
	for _, line := range []string{
		"image: x", "build: .", "entrypoint: z", "environment: {A: 1}", "env_file: x", "ports: ['80:80']", "expose: ['80']",
		"user: '1:2'", "working_dir: /x", "stop_signal: INT",
		"stop_grace_period: 5s", "healthcheck: {test: x}", "deploy: {replicas: 2}", "restart: always", "depends_on: [a]",
		"volumes: ['a:/b']", "networks: [a]", "container_name: a",
		"hostname: a", "labels: [a]", "logging: {}", "ulimits: {nofile: 3}", "cap_add: [a]", "cap_drop: [a]",
		"privileged: true", "read_only: true", "tmpfs: /t", "init: true", "tty: true",
		"mem_limit: 1g", "cpus: 1", "profiles: [a]", "extends: {}", "security_opt: ['no-new-privileges:true']",
		"oom_score_adj: 3", "scale: 2", "secrets: [a]", "anything: x",
	} {
		shows(t, source.Compose, "services:\n  x:\n    command: y\n", "    "+line+"\n", false)
	}
	for key, value := range map[string]string{"User": "nobody", "Nice": "3", "WatchdogSec": "5", "KillMode": "process",
		"RestartSec": "3", "LimitNOFILE": "3", "PIDFile": "/x", "ProtectHome": "yes",
		"Environment": "A=1", "ExecStartPre": "/x", "ExecReload": "/x", "TimeoutSec": "5", "StandardOutput": "null",
		"AmbientCapabilities": "CAP_CHOWN", "Whatever": "x", "MemoryMax": "1G"} {
		shows(t, source.Systemd, "[Service]\nExecStart=/y\n", key+"="+value+"\n", false)
	}
}
