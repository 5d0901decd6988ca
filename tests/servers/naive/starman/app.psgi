use strict;
use warnings;

my $body = "generation=$ENV{SUPERVISORD_GENERATION}\n";
sub {
    my $env = shift;
    select undef, undef, undef, 0.3 if $env->{PATH_INFO} eq '/slow';
    return [200, ['Content-Type' => 'text/plain', 'Content-Length' => length $body], [$body]];
};
