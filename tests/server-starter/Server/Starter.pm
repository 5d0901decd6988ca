package Server::Starter;

# Server::Starter for a test suite that calls its functions: each runs the start_server that $ENV{START_SERVER} names, with the
# command line that says the same. So the suite's tests of behaviour can be put to another program than the one they came with.

use strict;
use warnings;
use Exporter qw(import);

# The suite sleeps until start_server must have done something. On a busy machine it sleeps so many times as long.
BEGIN {
    my $times = $ENV{SLEEP_TIMES} || 1;
    no warnings 'once';
    *CORE::GLOBAL::sleep = sub (;$) { @_ ? CORE::sleep($_[0] * $times) : CORE::sleep };
}

our $VERSION   = '0.35';
our @EXPORT_OK = qw(start_server restart_server stop_server);

my %repeated = map { $_ => 1 } qw(port path);
my %switch   = map { $_ => 1 } qw(daemonize enable_auto_restart);

sub words {
    my %opts = @_ == 1 ? %{ $_[0] } : @_;
    my $exec = delete $opts{exec};
    # the function may leave the output where it is, the command line may not
    $opts{log_file} = '/dev/null' if $opts{daemonize} && !defined $opts{log_file};
    my @words;
    for my $name (sort keys %opts) {
        (my $flag = "--$name") =~ tr/_/-/;
        next unless defined $opts{$name};
        if    ($switch{$name})                   { push @words, $flag if $opts{$name} }
        elsif ($repeated{$name} && ref $opts{$name}) { push @words, "$flag=$_" for @{ $opts{$name} } }
        else                                     { push @words, "$flag=$opts{$name}" }
    }
    push @words, '--', @$exec if $exec;
    return @words;
}

sub program { $ENV{START_SERVER} or die "START_SERVER does not name a program\n" }

sub start_server {
    my @words = words(@_);
    exec { program() } program(), @words or die program() . ": $!\n";
}

sub restart_server { run('--restart', words(@_)) }
sub stop_server    { run('--stop',    words(@_)) }

sub run {
    system { program() } program(), @_;
    die program() . " ended with $?\n" if $?;
}

1;
