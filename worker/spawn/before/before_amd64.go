package before

const sysPrlimit64 = 302
