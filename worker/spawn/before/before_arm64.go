package before

const sysPrlimit64 = 261
