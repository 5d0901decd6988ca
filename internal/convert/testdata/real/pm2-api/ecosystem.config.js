module.exports = {
  apps: [
    {
      name: 'api',
      script: './dist/main.js',
      cwd: '/srv/api/current',
      instances: 'max',
      exec_mode: 'cluster',
      autorestart: true,
      watch: false,
      max_memory_restart: '1G',
      wait_ready: true,
      listen_timeout: 10000,
      kill_timeout: 5000,
      env: {
        NODE_ENV: 'development',
        PORT: 3000,
      },
      env_production: {
        NODE_ENV: 'production',
      },
    },
  ],

  deploy: {
    production: {
      user: 'deploy',
      host: 'app1.example.org',
      ref: 'origin/main',
      repo: 'git@git.example.org:team/api.git',
      path: '/srv/api',
      'post-deploy': 'npm ci && pm2 reload ecosystem.config.js --env production',
    },
  },
};
