package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.org/supervisord/internal/config"
)

// project makes a directory shop with files: NAME=TEXT, and NAME! for an executable one.
func project(t *testing.T, files ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shop")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, text, _ := strings.Cut(file, "=")
		mode := os.FileMode(0o644)
		if n, is := strings.CutSuffix(name, "!"); is {
			name, mode = n, 0o755
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProgramIsFoundByItsProject(t *testing.T) {
	for _, c := range []struct {
		files      []string
		name, want string
		lines      string // in the configuration
	}{
		{[]string{"go.mod=module example.com/a/web/v2\n", "main.go="}, "web", "./web", `command = ["./web"]`},
		{[]string{"go.mod=module example.com/a\n", "cmd/api/main.go="}, "api", "./bin/api", `address = "127.0.0.1:8080"`},
		{[]string{`package.json={"name":"@me/till","scripts":{"start":"node server.js --port 80"}}`}, "till",
			"node server.js --port 80", `method = "accept"`},
		{[]string{`package.json={"scripts":{"start":"NODE_ENV=production node ."}}`}, "shop",
			"sh -c exec NODE_ENV=production node .", "listen"},
		{[]string{`package.json={"name":"x"}`, "index.js="}, "x", "node index.js", "listen"},
		{[]string{"manage.py=", "till/wsgi.py="}, "till", "gunicorn till.wsgi:application", `method = "notify"`},
		{[]string{"manage.py=", "till/wsgi.py=", "venv/bin/gunicorn!="}, "till", "venv/bin/gunicorn till.wsgi:application",
			`"till.wsgi:application"`},
		{[]string{"Gemfile=gem 'rails'\ngem \"puma\", \"~> 6\"\n"}, "shop", "bundle exec puma", `["bundle", "exec", "puma"]`},
		{[]string{"pom.xml=<project><artifactId>till</artifactId><version>1.2</version></project>"}, "till",
			"java -jar target/till-1.2.jar", "till-1.2"},
		{[]string{"build.gradle=plugins {\n  id 'org.springframework.boot' version '3.5.0'\n}\nversion = '0.1'\n",
			"gradlew!=", "settings.gradle=rootProject.name = 'till'\n"},
			"till", "java -jar build/libs/till-0.1.jar", `address = "127.0.0.1:8080"`},
		{[]string{"build.gradle.kts=plugins { alias(libs.plugins.spring.boot) }\n" +
			"tasks.bootJar { archiveFileName.set(\"app.jar\") }\n"},
			"shop", "java -jar build/libs/app.jar", `address = "127.0.0.1:8080"`},
		{[]string{"build.gradle.kts=plugins {\n  application\n}\n", "settings.gradle.kts=rootProject.name = \"till\"\n"},
			"till", "build/install/till/bin/till", "listen"},
		{[]string{"Caddyfile=:8118 {\n\trespond hello\n}\n"}, "shop", "caddy run", `address = "0.0.0.0:8118"`},
		{[]string{"Cargo.toml=[package]\nname = \"till\"\n"}, "till", "target/release/till", "listen"},
		{[]string{"server!=", "README=", ".hidden!="}, "server", "./server", `command = ["./server"]`},
	} {
		dir := project(t, c.files...)
		found, err := Find(dir)
		if err != nil || found.Name != c.name || strings.Join(found.Command, " ") != c.want {
			t.Errorf("%q: got %+v, %v, want %s: %s", c.files, found, err, c.name, c.want)
			continue
		}
		text, todo := found.Configuration("", false)
		if !strings.Contains(text, c.lines) || strings.Contains(text, "\n\n\n") {
			t.Errorf("%q: the configuration lacks %s:\n%s", c.files, c.lines, text)
		}
		if _, err := config.Parse(dir, "c.toml", []byte(text)); err != nil {
			t.Errorf("%q: %v", c.files, err)
		}
		if found.Build != "" && !strings.Contains(strings.Join(todo, "\n"), found.Build) {
			t.Errorf("%q: nothing says how to build it: %q", c.files, todo)
		}
	}
}

func TestDirectoryWithoutAProgramIsAnErrorThatSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string
	}{
		{nil, "supervisord init -- ./server"},
		{[]string{"README=", "package.json=x", "go.mod=x", "pom.xml=x", "Cargo.toml=x", "manage.py="},
			"supervisord init -- ./server"},
		{[]string{"build.gradle=plugins { id 'java-library' }\n"}, "supervisord init -- ./server"},
		{[]string{"a!=", "b!="}, "several executable files (a, b)"},
		{[]string{"Procfile=web: x", "go.mod=module a"}, "supervisord convert "},
	} {
		if found, err := Find(project(t, c.files...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %+v, %v, want %q", c.files, found, err, c.want)
		}
	}
}

func TestDirectoryThatIsNotThereIsSaidToBeMissing(t *testing.T) {
	if _, err := Find(filepath.Join(t.TempDir(), "nodir")); err == nil || !strings.HasPrefix(err.Error(),
		"there is no directory ") || !strings.Contains(err.Error(), "supervisord init -- ./server") {
		t.Errorf("got %v", err)
	}
}

func TestNamedCommandIsKeptWordByWord(t *testing.T) {
	found := Named("/srv/x", []string{"./my server.sh", `a "b"`, ""})
	text, _ := found.Configuration("/srv/x", true)
	c, err := config.Parse("/srv/x", "c.toml", []byte(text))
	if err != nil || c.Programs[0].Name != "my-server" ||
		strings.Join(c.Programs[0].Command, "|") != `./my server.sh|a "b"|` || c.Programs[0].Directory != "/srv/x" {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestApplicationsOfPythonAndRackAreFound(t *testing.T) {
	for _, c := range []struct {
		files []string
		want  string // the command
		lines []string
	}{
		{[]string{"app.py=from flask import Flask\napp = Flask(__name__)\n", "requirements.txt=flask\n"},
			"gunicorn app:app", []string{`command = ["gunicorn", "app:app"]`, `address = "127.0.0.1:8000"`}},
		{[]string{"wsgi.py=import flask\nsite: flask.Flask = flask.Flask('x')\n", ".venv/bin/gunicorn!="},
			".venv/bin/gunicorn wsgi:site", nil},
		{[]string{"app.py=from flask import Flask\ndef create_app(config=None):\n    return Flask(__name__)\n"},
			"gunicorn app:create_app()", nil},
		{[]string{"main.py=from fastapi import FastAPI\nservice = FastAPI(title='x')\n", "venv/bin/uvicorn!="},
			"venv/bin/uvicorn main:service", []string{`["venv/bin/uvicorn", "main:service"]`, `address = "127.0.0.1:8000"`}},
		{[]string{"app.py=from starlette.applications import Starlette\napp = Starlette(routes=[])\n"}, "uvicorn app:app",
			nil},
		{[]string{"config.ru=run App\n"}, "puma", []string{`address = "127.0.0.1:9292"`}},
	} {
		dir := project(t, c.files...)
		found, err := Find(dir)
		if err != nil || strings.Join(found.Command, " ") != c.want || found.Name != "shop" {
			t.Errorf("%q: %+v, %v, want %s", c.files, found, err, c.want)
		}
		writes(t, found, c.lines...)
	}
	if _, err := Find(project(t, "main.py=print('hello')\n")); err == nil ||
		!strings.Contains(err.Error(), "Flask or FastAPI") {
		t.Errorf("a script is taken for an application: %v", err)
	}
	for _, dir := range []string{"/nowhere/at/all", os.Args[0]} {
		if _, err := Find(dir); err == nil || strings.Contains(err.Error(), "recognized") ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// writes fails unless what init writes is valid and has these lines.
func writes(t *testing.T, f Found, lines ...string) (text string) {
	t.Helper()
	text, _ = f.Configuration("", false)
	if _, err := config.Parse("/srv", "c.toml", []byte(text)); err != nil {
		t.Errorf("%q: %v\n%s", f.Command, err, text)
	}
	for _, line := range lines {
		if !strings.Contains(text, line) {
			t.Errorf("%q lacks %s:\n%s", f.Command, line, text)
		}
	}
	return text
}

func TestAddressOfACommandIsKept(t *testing.T) {
	for command, address := range map[string]string{
		"./server --port 8099": "127.0.0.1:8099", "./server -port=8099": "127.0.0.1:8099",
		"next start -p 3002":                   "127.0.0.1:3002",
		"java -jar app.jar --server.port=9009": "127.0.0.1:9009", "java -Dserver.port=9010 -jar app.jar": "127.0.0.1:9010",
		"./server --listen :8100 -v": "0.0.0.0:8100", "./server --addr=[::1]:81": "[::1]:81",
		"./web --host 0.0.0.0 --port 82": "0.0.0.0:82",
		"env PORT=5001 ./web":            "127.0.0.1:5001", "./web --bind unix:/run/web.sock": "unix:/run/web.sock",
		"./web --level 7 -x":      defaultAddress,
		"node server.js --port 0": defaultAddress,
	} {
		writes(t, Named("/srv/shop", strings.Fields(command)), `address = "`+address+`"`)
	}
	writes(t, Named("/srv/shop", []string{"sh", "-c", "exec PORT=5002 ./web"}), `address = "127.0.0.1:5002"`)
	for text, address := range map[string]string{
		`package.json={"scripts":{"start":"node app.js"},"dependencies":{"express":"4"}}`: "127.0.0.1:3000",
		`package.json={"main":"app.js"}`: "127.0.0.1:4567",
	} {
		found, err := Find(project(t, text, "app.js=const port = process.env.PORT || 4567\n"))
		if strings.Contains(text, "express") {
			found, err = Find(project(t, text, "app.js=require('./www')\n"))
		}
		if err != nil {
			t.Error(err)
		}
		writes(t, found, `address = "`+address+`"`)
	}
}

func TestCommandIsKeptAsItIs(t *testing.T) {
	for _, command := range []string{
		"uvicorn main:app --workers 2", "bundle exec puma -w 3", "hypercorn -w 4 a:b", "gunicorn -b 127.0.0.1:80 a:b",
		"node --inspect server.js", "npm start",
		"java -jar a.jar", "python3 -m http.server 8080", "php -S 127.0.0.1:80", "flask run -p 5001",
		"python manage.py runserver 0.0.0.0:8000", "haproxy -Ws -f x.cfg",
	} {
		writes(t, Named("/srv/shop", strings.Fields(command)), `command = ["`+strings.ReplaceAll(command, " ", `", "`)+`"]`)
	}
}

func TestOrdinaryUserIsToldToBind(t *testing.T) {
	for _, ordinary := range []bool{false, true} {
		text, _ := Named("/srv/shop", []string{"npm", "start"}).Configuration("", ordinary)
		if strings.Contains(text, "\nbind = \"on\"\n") != ordinary {
			t.Errorf("ordinary: %v:\n%s", ordinary, text)
		}
	}
	if text, _ := Named("/srv/shop", []string{"celery", "worker"}).Configuration("", true); strings.Contains(text,
		"bind") {
		t.Errorf("a program without a port is told to bind:\n%s", text)
	}
}

// TestPortIsFoundInTheProject has a project for each place that says where a program listens.
func TestPortIsFoundInTheProject(t *testing.T) {
	for _, c := range []struct {
		files   []string
		command string // "": what init finds
		address string
	}{
		{[]string{`.env=# x` + "\n" + `PORT=4001`}, "./web", "127.0.0.1:4001"},
		{[]string{"Dockerfile=FROM x\nENV PORT=4002\n"}, "node server.js", "127.0.0.1:4002"},
		{[]string{"Dockerfile=FROM x\nEXPOSE 4003/tcp\n"}, "./web", "127.0.0.1:4003"},
		{[]string{"Dockerfile=FROM x\nEXPOSE 80\nCMD [\"gunicorn\", \"-b\", \"0.0.0.0:4004\", \"a:b\"]\n"}, "",
			"0.0.0.0:4004"},
		{[]string{"Dockerfile=FROM x\nCMD exec ./web --port 4005\n"}, "", "127.0.0.1:4005"},
		{[]string{"Procfile=web: ./web --listen :4006\n"}, "./web", "127.0.0.1:4006"},
		{[]string{"config/puma.rb=port ENV.fetch(\"PORT\") { 4007 }\n"}, "bundle exec puma", "127.0.0.1:4007"},
		{[]string{"config/puma.rb=port ENV.fetch(\"PORT\") { 4007 }\n", ".env=PORT=4008\n"}, "bundle exec puma",
			"127.0.0.1:4008"},
		{[]string{"application.properties=a=b\nserver.port=4009\n"}, "java -jar a.jar", "127.0.0.1:4009"},
		{[]string{"pom.xml=<project><artifactId>x</artifactId><version>1</version></project>",
			"src/main/resources/application.yml=spring:\n  a: b\nserver:\n  x: y\n  port: ${P:4010}\n"}, "", "127.0.0.1:4010"},
		{[]string{"pom.xml=<project><artifactId>x</artifactId><version>1</version><a>spring-boot</a></project>"}, "",
			"127.0.0.1:8080"},
		{[]string{"build.gradle=apply plugin: 'org.springframework.boot'\n",
			"src/main/resources/application.properties=server.port=4024\n"}, "",
			"127.0.0.1:4024"},
		{[]string{"Caddyfile=# :1\n{\n\tadmin off\n}\n(all) {\n\tencode gzip\n}\nlocalhost:4025 {\n" +
			"\treverse_proxy localhost:9000\n}\n"}, "caddy run", "0.0.0.0:4025"},
		{[]string{"conf/site=http://a.example:4026, b.example:4026 {\n}\n"}, "caddy run --config conf/site", "0.0.0.0:4026"},
		// 80 and 443, too: nobody knows
		{[]string{"Caddyfile=example.com {\n}\n:4028 {\n}\n"}, "caddy run", "127.0.0.1:8080"},
		{[]string{"Caddyfile=:{$PORT:4027}\nreverse_proxy localhost:9000\n"}, "caddy run", "127.0.0.1:4027"},
		{[]string{"vite.config.js=export default { server: { port: 4011 } }\n"}, "npx vite", "127.0.0.1:4011"},
		{[]string{`package.json={"scripts":{"start":"next start -p 4012"}}`}, "npm start", "127.0.0.1:4012"},
		{[]string{`package.json={"scripts":{"serve":"PORT=4013 node ."}}`}, "yarn serve", "127.0.0.1:4013"},
		{[]string{`package.json={"main":"lib/x.js"}`, "lib/x.js=app.listen(4014)\n"}, "node .", "127.0.0.1:4014"},
		{[]string{"server.py=HTTPServer(('', 4015), H).serve_forever()\n"}, "python3 server.py", "127.0.0.1:4015"},
		{[]string{"app.py=app.run(host='0.0.0.0', port=4016)\n"}, "python app.py", "127.0.0.1:4016"},
		{[]string{"go.mod=module x/web\n", "main.go=http.ListenAndServe(\":4017\", nil)\n"}, "", "127.0.0.1:4017"},
		{nil, "python manage.py runserver 0.0.0.0:4018", "0.0.0.0:4018"},
		{nil, "python manage.py runserver", "127.0.0.1:8000"},
		{nil, "flask --app x run --port 4019", "127.0.0.1:4019"},
		{nil, "flask run", "127.0.0.1:5000"},
		{nil, "fastapi run main.py --port 4020", "127.0.0.1:4020"},
		{nil, "rails server -p 4021 -b 0.0.0.0", "0.0.0.0:4021"},
		{nil, "bin/rails s", "127.0.0.1:3000"},
		{nil, "python3 -m http.server 4022 --bind ::1", "[::1]:4022"},
		{nil, "rackup -p 4023", "127.0.0.1:4023"},
		{nil, "next start", "127.0.0.1:3000"},
	} {
		dir := project(t, c.files...)
		found := Named(dir, strings.Fields(c.command))
		if c.command == "" {
			var err error
			if found, err = Find(dir); err != nil {
				t.Errorf("%q: %v", c.files, err)
				continue
			}
		}
		writes(t, found, `address = "`+c.address+`"`)
	}
}

func TestWorkerOfAQueueHasNoListener(t *testing.T) {
	for command, single := range map[string]bool{
		"celery -A tasks worker": false, "python3 -m celery -A tasks beat": true, "bundle exec sidekiq -C x.yml": false,
		"poetry run rq worker high":        false,
		"php artisan queue:work --tries=3": false, "python manage.py qcluster": false,
		"venv/bin/python manage.py send_mails --loop": false,
		"php bin/console messenger:consume async":     false, "bundle exec rake jobs:work": false,
		"sh -c exec\tcelery\t-A\ttasks\tworker": false,
	} {
		argv := strings.Fields(command)
		if argv[0] == "sh" {
			argv = []string{"sh", "-c", "exec celery -A tasks worker"}
		}
		text := writes(t, Named("/srv/shop", argv), "[program.shop.stop]")
		if strings.Contains(text, "listen") || strings.Contains(text, "stop-first") != single {
			t.Errorf("%s:\n%s", command, text)
		}
	}
	for _, command := range []string{"python manage.py runserver", "gunicorn celery:app", "./worker"} {
		if text := writes(t, Named("/srv/shop", strings.Fields(command))); !strings.Contains(text, "listen") {
			t.Errorf("%s:\n%s", command, text)
		}
	}
}

func TestProgramIsNamedAfterTheProject(t *testing.T) {
	for command, want := range map[string]string{
		"bundle exec puma": "shop", "npm start": "shop", "python x.py": "shop", "node server.js": "shop",
		"java -jar a.jar": "shop", ".venv/bin/gunicorn a:b": "shop",
		"celery -A t worker": "shop", "./server --port 1": "server", "bin/api.sh": "api", "env A=1 ./till": "till",
		"/usr/bin/python3 -m http.server": "shop",
	} {
		if found := Named("/srv/shop", strings.Fields(command)); found.Name != want {
			t.Errorf("%s: %s, want %s", command, found.Name, want)
		}
	}
}

func TestUWSGIIsNotToldAboutItsSockets(t *testing.T) {
	writes(t, Named("/srv/shop", strings.Fields("uwsgi --http-socket :8114 --wsgi-file app.py")),
		"# It takes sockets of LISTEN_FDS for such that speak its own protocol.\ndialect = []\n", `address = "0.0.0.0:8114"`)
	if text := writes(t, Named("/srv/shop", []string{"puma"})); strings.Contains(text, "dialect") {
		t.Errorf("puma has no reason for a dialect:\n%s", text)
	}
}
