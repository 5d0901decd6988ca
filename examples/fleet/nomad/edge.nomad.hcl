# One allocation a node, on a static port: Nomad cannot start a new one beside the old one, but supervisord a new release.
variable "datacenters" {
  type    = list(string)
  default = ["dc1"]
}

job "edge" {
  type        = "system"
  datacenters = var.datacenters

  update { # for a changed job; a new release needs no new allocation
    max_parallel = 1
    stagger      = "30s"
  }

  group "edge" {
    network {
      port "http" { static = 8080 }
      port "supervisord" { static = 9001 }
    }

    volume "releases" { # /srv/edge with the releases, in the client's configuration: host_volume "edge" { path = "/srv/edge" }
      type      = "host"
      source    = "edge"
      read_only = true
    }

    service {
      name     = "edge"
      provider = "nomad"
      port     = "http"
      check {
        name     = "every program serves"
        type     = "http"
        port     = "supervisord"
        path     = "/readyz"
        interval = "5s"
        timeout  = "3s"
      }
    }

    shutdown_delay = "5s" # the service is no longer announced, and everything keeps serving

    task "supervisord" {
      driver       = "exec"
      kill_timeout = "35s" # stop.timeout 30s + 5s; the client's max_kill_timeout must allow it

      config {
        command = "/usr/bin/supervisord"
        args    = ["-c", "/local/config.toml"] # /local is the directory "local" of the task
      }

      volume_mount {
        volume      = "releases"
        destination = "/srv/edge"
        read_only   = true
      }

      template {
        destination = "local/config.toml"
        data        = <<-END
          [supervisor]
          runtime_dir = "/local/run"
          http        = ":{{ env "NOMAD_PORT_supervisord" }}"

          [program.edge]
          command   = ["./serve"]
          directory = "/srv/edge/releases/{{ with nomadVar "nomad/jobs/edge" }}{{ .release }}{{ end }}"
          workers   = 2
          stderr    = "capture"

          [[program.edge.listen]]
          name    = "http"
          address = ":{{ env "NOMAD_PORT_http" }}"

          [program.edge.ready]
          timeout = "30s"

          [program.edge.reload]
          soak = "5s"

          [program.edge.stop]
          timeout = "30s"
        END

        # A changed variable is a new configuration, and so a reload. If it fails, the old release keeps serving, and so does the task.
        change_mode = "script"
        change_script {
          command       = "/usr/bin/supervisord"
          args          = ["reload", "-c", "/local/config.toml", "--timeout", "2m"]
          timeout       = "3m"
          fail_on_error = false
        }
        splay = "60s" # not all nodes in the same second
      }

      resources {
        cpu    = 500
        memory = 512
      }
    }
  }
}
