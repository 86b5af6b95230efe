-- A session of net.box, Tarantool's own client: tarantool net_box.lua PORT DIRECTORY
local net_box = require('net.box')
local fiber = require('fiber')

box.cfg{work_dir = arg[2], log = arg[2] .. '/net_box.log', listen = nil}

local function check(is_right, what)
    if not is_right then
        print('wrong: ' .. what)
        os.exit(1)
    end
end

local uri = 'admin:sesame@127.0.0.1:' .. arg[1]
local conn = net_box.connect(uri, {connect_timeout = 60}) -- a loaded machine is no fault
check(conn:ping({timeout = 60}), 'ping: ' .. tostring(conn.error))
check(conn.state == 'active', 'state ' .. conn.state)
conn:call('queue.create_tube', {'box', 'utubettl', {if_not_exists = true}})

local task = conn:call('queue.tube.box:put', {{a = {1, 2}}, {utube = 'x', ttr = 30}})
check(task[1] == 0 and task[2] == 'r' and task[3].a[2] == 2, 'put')
task = conn:call('queue.tube.box:take', {0})
check(task[1] == 0 and task[2] == 't', 'take')
check(conn:call('queue.tube.box:take', {0}) == nil, 'take of an empty tube')
check(conn:call('queue.tube.box:ack', {0})[2] == '-', 'ack')

local is_done, problem = pcall(conn.call, conn, 'queue.tube.box:ack', {0})
check(not is_done and tostring(problem) == 'Task was not taken', 'error text')
check(problem.code == 32, 'error code')
is_done, problem = pcall(conn.call, conn, 'queue.tube.none:ack', {0})
check(problem.code == 33, 'no such procedure')

-- a take that waits, in a fiber of its own, over the same connection
local got = fiber.channel(1)
fiber.create(function() got:put(conn:call('queue.tube.box:take', {10})) end)
fiber.yield()
check(conn:call('queue.state') == 'RUNNING', 'state')
conn:call('queue.tube.box:put', {'late'})
check(got:get(5)[3] == 'late', 'a blocked take')

-- two connections in one session
local uuid = conn:call('queue.identify')
check(#uuid == 16, 'identify')
local other = net_box.connect(uri)
check(other:call('queue.identify', {uuid}) == uuid, 'identify of another connection')
conn:close()
check(other:call('queue.tube.box:ack', {1})[2] == '-', 'ack of the session')
check(other:call('queue.statistics', {'box'}).calls.put == 2, 'statistics')
check(other:call('queue.tube')[1] == 'box', 'names')
check(other:eval('local name = ...; return queue.tube[name] ~= nil', {'box'}) == true, 'eval')

local stranger = net_box.connect('admin:wrong@127.0.0.1:' .. arg[1])
check(stranger.state == 'error', 'wrong password')
check(stranger.error == 'User not found or supplied credentials are invalid', tostring(stranger.error))

print('all right')
os.exit(0)
