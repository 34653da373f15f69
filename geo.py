import os
from bwprof import _core
d=_core.Device('cuda')
for op in ('stream_read','stream_write','stream_copy','stream_triad'):
  for g in ('0 0','32 1','64 1','128 1','256 1','64 2','128 2','256 2','64 4','128 4','256 4'):
    t,u=g.split()
    if op=='stream_read' and u not in '01': continue
    os.environ['G_T']=t; os.environ['G_U']=u
    o=[]
    for kb in (64,256,512,1024,2048,4096,8192,16384,65536,262144,1048576):
      with _core.Case(d,op,'fp32',{'elements':kb*256}) as c:
        m=c.measure(max_seconds=0.02,verify_budget_s=0.0001)
        o.append('%d:%.2f'%(kb,m['median_ns']/1e3))
    print(op,g,' '.join(o))
