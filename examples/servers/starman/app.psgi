use strict;
use warnings;

# Answers at once; /?0.3 after 0.3 s.
sub {
    my $env = shift;
    select undef, undef, undef, $env->{QUERY_STRING} || 0;
    [200, ['Content-Type' => 'text/plain'], ["generation=$ENV{SUPERVISORD_GENERATION}\n"]];
};
