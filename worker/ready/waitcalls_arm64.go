package ready

import "golang.org/x/sys/unix"

// waitCalls are the system calls with which a program waits for connections or datagrams.
var waitCalls = map[int]waitCall{
	unix.SYS_ACCEPT: onDescriptor, unix.SYS_ACCEPT4: onDescriptor,
	unix.SYS_RECVFROM: onDescriptor, unix.SYS_RECVMSG: onDescriptor, unix.SYS_RECVMMSG: onDescriptor,
	unix.SYS_READ:        onDescriptor,
	unix.SYS_EPOLL_PWAIT: onEpoll, unix.SYS_EPOLL_PWAIT2: onEpoll,
	unix.SYS_PPOLL: onPoll, unix.SYS_PSELECT6: onSelect,
}
