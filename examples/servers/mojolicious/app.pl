use Mojolicious::Lite -signatures;

get '/'     => sub ($c) { $c->render(text => "generation=$ENV{SUPERVISORD_GENERATION}\n") };
get '/slow' => sub ($c) { $c->render_later; Mojo::IOLoop->timer(0.3 => sub { $c->render(text => "generation=$ENV{SUPERVISORD_GENERATION}\n") }) };

app->start;
